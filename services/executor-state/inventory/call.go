package inventory

import (
	"berth.dev/pkg/resource"
)

// Register is the request of an agent that starts: it makes its executor known and returns
// the incarnation. The reply's Value is a [Registered].
type Register struct {
	ID, Address string
	SKU, Host   string
	Attributes  map[string]string
	Resources   resource.Vector
	// Reserved are the shares of Resources that it reserves for roles.
	Reserved   map[string]resource.Vector
	Generation int64
	// Nonce is chosen by each agent process. A repeat with the same nonce returns the
	// same incarnation and writes nothing.
	Nonce string
	// SecretHash is the hash of the agent's secret; empty for an agent without one.
	SecretHash string
}

// Registered is the reply to Register.
type Registered struct {
	// Incarnation identifies the registration in everything that the agent sends.
	Incarnation int64
	// AssignerTerm is the lowest term of commands that the agent accepts: that of the
	// leading assigner in this view, 0 for none.
	AssignerTerm int64
}

// Announce is the request to put an executor's presence on an etcd lease. The
// reply's Value is an [Announced].
type Announce struct {
	ID          string
	Incarnation int64
	EtcdLease   int64
	// Workers is how many live on it, as its agent reported.
	Workers int
	// Orphans: some of them are orphaned, or the assigner has not confirmed them yet.
	Orphans bool
	// Nonce is the one that the agent sent as that of its registration; empty from a
	// replica of an older release, which does not read it.
	Nonce string
}

// Announced is the reply to Announce: the presence is durable, or another agent has
// superseded the sender.
type Announced struct{ Superseded bool }

// Depart is the request to end an executor's presence because its agent's process is
// known to be dead. A presence of another incarnation or on another etcd lease stays. The
// reply's Value is a [Departed].
type Depart struct {
	ID          string
	Incarnation int64
	EtcdLease   int64
}

// Departed is the reply to Depart: the presence was deleted, or was another one.
type Departed struct{}
