package model

import (
	"crypto/subtle"
	"strings"
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
	// Resources is the capacity of the executor, including `slots`.
	Resources  resource.Vector
	Generation int64
	// Incarnation rises each time an agent registers. Nonce distinguishes a repeat of a
	// registration from the next registration.
	Incarnation int64
	Nonce       string
	// Former has the nonces of up to MaxFormer earlier registrations, newest first.
	// Executor-state refuses a registration with one of them, because its agent is
	// superseded.
	Former []string
	// SecretHash is the SHA-256 of the agent's secret. It is empty for an agent without a
	// secret. It decides which agent may register the executor.
	SecretHash string
	// SupersededWorkers is set while a superseded agent reports live workers. During that
	// time the executor gets no leases, because those workers may use its capacity.
	SupersededWorkers bool
	// Ordinal is a number that leases and tasks contain instead of the ID. It is never
	// reused.
	Ordinal uint32
	// Reserved has the share of Resources that is reserved for each role.
	Reserved map[string]resource.Vector
	// Draining is set while the workers on the executor are being evicted. It is derived
	// from the requests to drain, and stored so that the assigner can read it.
	Draining bool
	// DrainGrace is the shortest time that the drains of the executor give workers to end after their
	// termination signal; nil if none does.
	DrainGrace *time.Duration
	// Unreported has the IDs of requests to disable that began to apply to the executor only
	// after they were made. It has only the requests about which some job with workers on
	// the executor has no event yet. ReportedThrough is the UID of the last lease whose job
	// has the event about the first of these requests.
	Unreported      []string
	ReportedThrough string
	// Lost is set when the executor's workers became LOST. Since is the time of that change.
	Lost bool
	// Silent is set while the executor has answered no start request for as long as after which it
	// would be LOST, although it is present. The assigner gives up the workers that it never
	// acknowledged.
	Silent bool
	// Returning is set when the executor registers after it was LOST. It stays set until the
	// executor reports that none of its earlier workers is left. During that time the
	// executor gets no leases.
	Returning bool
	// Orphans is set while orphaned workers run on the executor, or while the assigner has
	// not confirmed that all workers on the executor have records. During that time the
	// executor gets no leases, because orphaned workers use capacity that no lease counts.
	Orphans bool
	// Removals has the IDs of up to MaxRemovals volumes that an operator requests the executor
	// to destroy although no record assigns them to it, in order. An ID is removed once the
	// executor no longer lists the volume.
	Removals []string
	// Cell is set if the executor is another Berth cluster. Then it has no resources, and runs
	// only reservations with constraints.Cells.
	Cell bool
	// NeedsCommand is set if the executor starts programs, so that it cannot start a task without a
	// command. It is not set for an agent of an older version.
	NeedsCommand bool
	// AllowLists is a digest of the lists of commands and variables that the agent allows. Executors
	// with equal digests refuse the same tasks. It is empty for an agent of an older version.
	AllowLists   string
	RegisteredAt time.Time
	// Since is the time at which the executor became LOST or, otherwise, at which it first
	// registered after it last had presence.
	Since time.Time
}

// Proves reports whether the sender of the nonce is the agent that registered the
// executor. Agents of older releases have no secret and send no nonce.
func (e *Executor) Proves(nonce string) bool {
	return e.SecretHash == "" || subtle.ConstantTimeCompare([]byte(e.Nonce), []byte(nonce)) == 1
}

// DialHost returns the host part of the agent's address, without the brackets of an IPv6
// address. The assigner has reached the agent there, so others can too.
func (e *Executor) DialHost() string {
	host := e.Address
	if port := strings.LastIndexByte(host, ':'); port >= 0 {
		host = host[:port]
	}
	return strings.Trim(host, "[]")
}

// MaxFormer is the maximum length of Executor.Former, and MaxRemovals that of
// Executor.Removals.
const (
	MaxFormer   = 8
	MaxRemovals = 100
)

// Match returns the properties of the executor that constraints can refer to, except its
// pools.
func (e *Executor) Match() constraint.Host {
	return constraint.Host{ID: e.ID, SKU: e.SKU, Attributes: e.Attributes}
}

// Forgotten is the record about deleted executors. It contains the greatest ordinal and
// the greatest incarnation of all of them, so that neither is used again.
type Forgotten struct {
	Ordinal     uint32
	Incarnation int64
}

// ExecutorState is derived from the executor's record and its presence.
type ExecutorState uint8

// The states of an executor. The first heartbeat changes REGISTERED to READY. A READY
// executor that loses its presence becomes UNREACHABLE, and later LOST.
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
// etcd lease, and etcd deletes the key when the lease expires.
type Live struct {
	ID          string
	Incarnation int64
	// EtcdLease is the etcd lease to which the key is attached.
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
	// Chunks and Total are the numbers of chunks and workers of the lease when it was
	// granted.
	Chunks, Total int32
	Key           Key
	Epoch         int64
	// Each has the resources of one worker. A worker uses the share that is reserved for
	// Role first.
	Each    resource.Vector
	Role    string
	Workers []Placement
	// OnVolumes is set if the workers are on volumes. Their volumes hold Each, so the
	// workers use nothing in addition.
	OnVolumes bool
	// Rating is the share of the scarcest requested resource that was left on all executors that
	// match when the lease was granted, in percent. It is set in the lease of a held reservation.
	Rating *int32
	// Cut is the Cut of the scheduling cycle that granted the lease.
	Cut       int64
	GrantedAt time.Time
	// Trace is the trace of the reservation.
	Trace Trace

	// Create is the create revision of the key, or 0 until the chunk is committed.
	Create int64
}

// Placement is a worker and the executor on which it is placed.
type Placement struct {
	Worker  WorkerID
	Ordinal uint32
}
