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
	// Resources is its capacity, including `slots`.
	Resources  resource.Vector
	Generation int64
	// Incarnation rises each time an agent registers; Nonce distinguishes a repeat of
	// one registration from the next.
	Incarnation int64
	Nonce       string
	// Former are the nonces of the earlier registrations, newest first, at most
	// MaxFormer. A superseded agent cannot register again with one of them.
	Former []string
	// SecretHash is the SHA-256 of its agent's secret, empty for an agent without one.
	// It decides which agent may register the executor.
	SecretHash string
	// SupersededWorkers is set while a superseded agent reports live workers. The
	// executor gets no leases then, since those workers may use its capacity.
	SupersededWorkers bool
	// Ordinal stands for the ID in leases and tasks. It is never reused.
	Ordinal uint32
	// Reserved are the shares of Resources that are reserved for roles, by role.
	Reserved map[string]resource.Vector
	// Draining: the workers on it are evicted. It is derived from the requests to
	// drain, and stored for the assigner.
	Draining bool
	// Unreported are the IDs of the requests to disable that began to apply to it after they
	// were made, and that were not yet reported to the jobs with workers on it.
	// ReportedThrough is the
	// UID of the last lease for which the first of them was reported.
	Unreported      []string
	ReportedThrough string
	// Lost is set when its workers became LOST, Since with it.
	Lost bool
	// Returning is set once it has registered since it was LOST, until it reports that
	// none of its earlier workers is left. It gets no leases then.
	Returning bool
	// Orphans is set while orphaned workers run on it, or while the assigner has not
	// confirmed that all its workers have records. It gets no leases then, since
	// orphaned workers use capacity that is not counted.
	Orphans      bool
	RegisteredAt time.Time
	// Since is when it was LOST, or registered after it last had presence.
	Since time.Time
}

// Proves reports whether the sender of the nonce is the agent that registered the
// executor. Agents without a secret, which are of an older release, give no nonce.
func (e *Executor) Proves(nonce string) bool {
	return e.SecretHash == "" || subtle.ConstantTimeCompare([]byte(e.Nonce), []byte(nonce)) == 1
}

// MaxFormer is the maximum length of Executor.Former.
const MaxFormer = 8

// Match returns the attributes that constraints refer to, without the executor's pools.
func (e *Executor) Match() constraint.Host {
	return constraint.Host{ID: e.ID, SKU: e.SKU, Attributes: e.Attributes}
}

// Forgotten is the record about deleted executors: the greatest ordinal and the
// greatest incarnation among them, so that neither is reused.
type Forgotten struct {
	Ordinal     uint32
	Incarnation int64
}

// ExecutorState is derived from the executor's record and its presence.
type ExecutorState uint8

// The states. The first heartbeat leads from REGISTERED to READY. Without presence a
// READY executor becomes UNREACHABLE, and LOST after a while.
const (
	ExecutorUnset ExecutorState = iota
	ExecutorRegistered
	ExecutorReady
	ExecutorUnreachable
	ExecutorLost
)

var executorStateNames = [...]string{"", "REGISTERED", "READY", "UNREACHABLE", "LOST"}

func (s ExecutorState) String() string { return executorStateNames[s] }

// Live is the record of an executor's presence. Its key is attached to the executor's
// etcd lease and is deleted when that expires.
type Live struct {
	ID          string
	Incarnation int64
	// EtcdLease is the etcd lease that the key is attached to.
	EtcdLease int64
}

// LeaseChunkSize is the maximum number of workers in one chunk of a lease.
const LeaseChunkSize = 1024

// LeaseChunk is the record of up to LeaseChunkSize workers of a lease. All chunks of a
// lease are put in one transaction. When a worker ends, it is removed from its chunk;
// an empty chunk is deleted.
type LeaseChunk struct {
	UID   string
	Chunk int32
	// Chunks and Total are the numbers of chunks and workers when the lease was
	// granted.
	Chunks, Total int32
	Key           Key
	Epoch         int64
	// Each is the resources of one worker; the share of Role is used first.
	Each    resource.Vector
	Role    string
	Workers []Placement
	// Cut is the registry's revision at which the granting cycle started.
	Cut       int64
	GrantedAt time.Time
	// Trace is the trace of the reservation.
	Trace Trace

	// Create is the create revision of the key, 0 until the chunk is committed.
	Create int64
}

// Placement is a worker and the executor on which it is placed.
type Placement struct {
	Worker  WorkerID
	Ordinal uint32
}
