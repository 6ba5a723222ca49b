package model

import (
	"crypto/subtle"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Executor is the record of a host and its agent.
type Executor struct {
	ID         string
	Address    string
	SKU        string
	Host       string
	Attributes map[string]string
	// Resources is its capacity, `slots` included.
	Resources  resource.Vector
	Generation int64
	// Incarnation rises each time an agent registers; Nonce tells a repeat of
	// one registration from the next.
	Incarnation int64
	Nonce       string
	// Former are the nonces of the registrations before, newest first, at most
	// MaxFormer: an agent that another one has followed does not come back while that
	// one may.
	Former []string
	// SecretHash is the SHA-256 of its agent's secret, empty for an agent without
	// one. It decides which agent may register the executor.
	SecretHash string
	// SupersededWorkers is set while an agent that another one has superseded
	// reports living workers: it is given nothing, for they may use its capacity.
	SupersededWorkers bool
	// Ordinal stands for the id in leases and tasks. It is never reused.
	Ordinal uint32
	// Reserved are the shares of Resources set aside for roles, by role.
	Reserved map[string]resource.Vector
	// Draining: workers on it are to go. It is derived from the requests to
	// drain, and kept here for the assigner.
	Draining bool
	// Untold are the ids of the requests to disable that it came under later, and
	// of which the jobs with workers on it are still to be told. Told is the uid of
	// the last lease that was told of the first of them.
	Untold []string
	Told   string
	// Lost is set when the executor's workers were given up, Since with it.
	Lost bool
	// Returning is set once it has registered since it was LOST, until it reports
	// that none of its workers of before is left: it is given nothing.
	Returning bool
	// Strays is set while workers live on it that no record wants there, or while
	// the assigner has not said of those that live on it that records do: it is
	// given nothing, for what they use is not counted.
	Strays       bool
	RegisteredAt time.Time
	// Since is when it was given up, or else registered after it last had presence.
	Since time.Time
}

// Proves reports whether who gives the nonce is the agent that registered the
// executor. Agents without a secret, which are of an older release, give none.
func (e *Executor) Proves(nonce string) bool {
	return e.SecretHash == "" || subtle.ConstantTimeCompare([]byte(e.Nonce), []byte(nonce)) == 1
}

// MaxFormer is how many former registrations of an executor are remembered.
const MaxFormer = 8

// Match gives what constraints look at, but for the pools that the executor is
// in.
func (e *Executor) Match() constraint.Host {
	return constraint.Host{ID: e.ID, SKU: e.SKU, Attributes: e.Attributes}
}

// Forgotten is what is kept of executors whose records were deleted: the
// greatest ordinal and the greatest incarnation among them, so that neither is
// ever given again.
type Forgotten struct {
	Ordinal     uint32
	Incarnation int64
}

// ExecutorState is derived from the executor's record and its presence.
type ExecutorState uint8

// The states. From REGISTERED the first heartbeat leads to READY; without
// presence READY becomes UNREACHABLE, and LOST after a while.
const (
	ExecutorUnset ExecutorState = iota
	ExecutorRegistered
	ExecutorReady
	ExecutorUnreachable
	ExecutorLost
)

var executorStateNames = [...]string{"", "REGISTERED", "READY", "UNREACHABLE", "LOST"}

func (s ExecutorState) String() string { return executorStateNames[s] }

// Live is the record of an executor's presence. It stands on the executor's
// etcd lease: when that runs out, everyone knows.
type Live struct {
	ID          string
	Incarnation int64
	// EtcdLease is the etcd lease that the key stands on.
	EtcdLease int64
}

// LeaseChunkSize is how many workers one chunk of a lease holds at most.
const LeaseChunkSize = 1024

// LeaseChunk is the record of up to LeaseChunkSize workers of a lease. All
// chunks of a lease are put in one transaction; a worker's end takes it out of
// its chunk, and an empty chunk is deleted.
type LeaseChunk struct {
	UID   string
	Chunk int32
	// Chunks and Total are those the lease was granted with.
	Chunks, Total int32
	Key           Key
	Epoch         int64
	// Each is what one worker takes; the share of Role is taken first.
	Each    resource.Vector
	Role    string
	Workers []Placement
	// Cut is the registry's revision at which the granting cycle started.
	Cut       int64
	GrantedAt time.Time
	// Trace is the reservation's.
	Trace Trace

	// Create is the create revision of the key, 0 until committed.
	Create int64
}

// Placement is a worker and the executor that it is placed on.
type Placement struct {
	Worker  WorkerID
	Ordinal uint32
}
