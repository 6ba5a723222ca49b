package inventory

import (
	"berth.dev/pkg/resource"
)

// Register is the request of an agent that starts: it makes its executor known
// and is told its incarnation. The reply's Value is a [Registered].
type Register struct {
	ID, Address string
	SKU, Host   string
	Attributes  map[string]string
	Resources   resource.Vector
	// Reserved are the shares of Resources that it sets aside, by role.
	Reserved   map[string]resource.Vector
	Generation int64
	// Nonce is made afresh by each agent process. A repeat of the same one
	// answers the same incarnation and writes nothing.
	Nonce string
	// SecretHash is the hash of the agent's secret; empty for an agent without one.
	SecretHash string
}

// Registered answers Register.
type Registered struct {
	// Incarnation is what the agent names itself with from now on.
	Incarnation int64
	// AssignerTerm is the floor of the terms of commands: that of the assigner
	// that leads as far as this view knows, 0 while it knows of none.
	AssignerTerm int64
}

// Announce is the request to put an executor's presence on an etcd lease. The
// reply's Value is an [Announced].
type Announce struct {
	ID          string
	Incarnation int64
	EtcdLease   int64
	// Workers is how many live on it, as its agent has reported.
	Workers int
	// Strays: some of them should not be there, or the assigner has not said yet
	// that they should.
	Strays bool
	// Nonce is what the agent gave for its registration's; empty if it was not looked
	// at, for the replica is of an older release.
	Nonce string
}

// Announced answers Announce: the presence is durable, or another agent has
// superseded the one that asks.
type Announced struct{ Superseded bool }

// Depart is the request to end an executor's presence: its agent's process is
// proven dead. A presence of another incarnation, or on another etcd lease, is
// not the one that is meant, and stands. The reply's Value is a [Departed].
type Depart struct {
	ID          string
	Incarnation int64
	EtcdLease   int64
}

// Departed answers Depart: the presence is gone, or was not the one meant.
type Departed struct{}
