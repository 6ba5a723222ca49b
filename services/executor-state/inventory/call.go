package inventory

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
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

// Pass is the request of the registry to try its queues. The reply's Value is
// a []Outcome: one for each entry, in their order, but for those offered again of
// which there is nothing new to say.
type Pass struct {
	// Term is that of the registry's leader; Pass rises within it.
	Term, Pass int64
	// Cut is the registry's revision at which the pass was cut.
	Cut     int64
	Entries []Entry
}

// From returns the service that sends passes, and its term.
func (p Pass) From() (service string, term int64) { return model.ServiceRegistry, p.Term }

// Known is the newest revision that the registry knew when it cut the pass.
func (p Pass) Known() int64 {
	newest := p.Cut
	for i := range p.Entries {
		newest = max(newest, p.Entries[i].Mod, p.Entries[i].Epoch)
	}
	return newest
}

// Entry is one reservation of a pass.
type Entry struct {
	Key   model.Key
	UID   string
	Epoch int64
	// Mod is the modification revision of the reservation's record as it was
	// decided on.
	Mod         int64
	Group       string
	Constraints constraint.Constraints
	Seats       model.Seats
	// Trace is the reservation's.
	Trace model.Trace
	// Again says that the last pass found no room for it, and that it has not changed
	// since: only UID, Mod and Group are given.
	Again bool
}

// Result is what became of an entry.
type Result uint8

// The results; the numbers are those of the wire.
const (
	ResultUnset Result = iota
	// Granted: the lease is durable.
	Granted
	// NoFit: not all workers fit now. Nothing is held.
	NoFit
	// Stale: the reservation is no longer as it was decided on.
	Stale
	// Behind: an entry of its group before it was not granted.
	Behind
	// Later: it was not looked at, for the entries before it took all that a
	// pass may. None after it was either.
	Later
)

var resultNames = [...]string{"", "GRANTED", "NO_FIT", "STALE", "BEHIND", "LATER"}

func (r Result) String() string { return resultNames[r] }

// Outcome answers an entry.
type Outcome struct {
	UID    string
	Result Result
	// Lease is the create revision of the lease granted.
	Lease int64
	// Reason and Message say why it was not granted.
	Reason  fault.Reason
	Message string
	// Fitting is how many of the entry's workers would have fitted.
	Fitting int
}
