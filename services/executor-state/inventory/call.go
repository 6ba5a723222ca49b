package inventory

import (
	"berth.dev/pkg/resource"
)

// Register is the request with which an agent registers its executor when it starts. The
// reply's Value is a [Registered] with the incarnation.
type Register struct {
	ID, Address string
	SKU, Host   string
	Attributes  map[string]string
	Resources   resource.Vector
	// Reserved are the shares of Resources that the executor reserves for roles.
	Reserved   map[string]resource.Vector
	Generation int64
	// Nonce is chosen by each agent process. A repeat with the same nonce returns the same
	// incarnation and writes nothing.
	Nonce string
	// SecretHash is the hash of the agent's secret; empty for an agent without one.
	SecretHash string
	// Cell is set if the executor is another Berth cluster.
	Cell bool
	// NeedsCommand is set if the executor cannot start a task without a command.
	NeedsCommand bool
	// AllowLists is a digest of what the agent allows; empty if the agent reports none.
	AllowLists string
}

// Registered is the reply to Register.
type Registered struct {
	// Incarnation identifies this registration in every message of the agent.
	Incarnation int64
	// AssignerTerm is the lowest term of commands that the agent accepts. It is the term of
	// the leading assigner in this view; 0 if there is none.
	AssignerTerm int64
}

// Announce is the request to bind an executor's presence to an etcd lease. The reply's
// Value is an [Announced].
type Announce struct {
	ID          string
	Incarnation int64
	EtcdLease   int64
	// Workers is the number of live workers on the executor, as its agent reported them.
	Workers int
	// Orphans reports whether some of these workers are orphaned, or the assigner has not
	// confirmed them yet.
	Orphans bool
	// Nonce is the nonce of the registration, as the agent sent it. It is empty if a replica
	// of an older release forwards the request, because that release does not read the
	// nonce.
	Nonce string
}

// Announced is the reply to Announce. Either the presence is durable, or another agent
// has superseded the sender.
type Announced struct{ Superseded bool }

// Depart is the request to end an executor's presence because its agent's process is
// known to be dead. It does not end a presence of another incarnation or on another etcd
// lease. The reply's Value is a [Departed].
type Depart struct {
	ID          string
	Incarnation int64
	EtcdLease   int64
}

// Departed is the reply to Depart. Either the presence was deleted, or the executor had
// another presence or none.
type Departed struct{}
