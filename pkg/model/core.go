package model

import "time"

// Core is the interface of the three cores: deterministic state machines without clock,
// I/O, goroutines or locks. One goroutine owns a core and calls it.
//
// All state of a core is a function of the records that it received. A single function
// sets a record in its memory, for records from the store's view (Changed) and for the
// core's own decisions (the Effects that it returns). A decision changes memory at once
// and tentatively, so that many decisions can share one transaction. Committed makes
// the first of them durable. Abandoned undoes all that are not durable by setting the
// earlier records again. There is no other undo.
type Core interface {
	// Step processes one event and returns the actions for it, in order. A nil event
	// means that time has passed. An action after an Effect is carried out only once
	// that Effect is durable.
	Step(now time.Time, event Event) []Action
	// NextDeadline is the time of the next Step with a nil event; zero without one.
	NextDeadline() time.Time
}

// Event is an input of a core. The types in this file are common to all cores, others
// belong to one.
type Event any

// Action is an output of a core: an Effect, a Reply, or one of its own types.
type Action any

// Changed has one record of the store's view, in order of revision. A core that does
// not lead receives all records. One that leads receives its own kinds only if its own
// commits were not the cause (such as an expired etcd lease).
type Changed struct {
	Ref Ref
	// Record is nil when the key was deleted.
	Record Record
	// Create and Mod are the key's create and mod revisions. For a deletion, Mod is its
	// revision.
	Create, Mod int64
}

// Elected says that the core's replica leads from now on, and that its view has reached
// the revision of the election. From then on the core may decide.
type Elected struct {
	Term int64
	// Revision is the revision of the view.
	Revision int64
}

// Committed says that the first Effects uncommitted effects are durable, all of them by
// the transaction of this revision.
type Committed struct {
	Effects  int
	Revision int64
}

// Abandoned says that no uncommitted effect becomes durable. The core undoes them and
// receives their inputs again.
type Abandoned struct{}

// Quarantined says that a record is quarantined. Either the record exists but the core does
// not receive it, because it cannot be decoded or because it made the core panic. Or
// the core receives it, and a decision about it made the core panic. The core must not
// free capacity that the record may use, and must not start anything for it, whatever
// else the core knows about the same object.
//
// A core receives it while it does not lead, and it applies for the life of the core:
// if the set of quarantined records changes, the core is rebuilt.
type Quarantined struct {
	Ref Ref
}

// QuarantineCore is a core that can run while some records are quarantined.
type QuarantineCore interface {
	Core
	// Subject is the record that the core was deciding about, in the current step or
	// the last one. It is zero if that is only the record of its event. If a step
	// panics, this record is the cause.
	Subject() Ref
	// CanMiss reports whether the core stays correct if it receives Quarantined instead of the
	// record.
	CanMiss(ref Ref) bool
}

// LeaderTerm has the term of another service's leader as stored, ahead of the view: a
// request names that term, and the view has not shown it yet. A core ignores it if its
// view has reached the term.
type LeaderTerm struct {
	Service string
	Term    int64
}

// Progress says that the view has reached a revision: the core has received all changes
// up to it. It follows the changes of each batch.
type Progress struct {
	Revision int64
}

// Input is a request that wants a Reply with its token.
type Input struct {
	Token   uint64
	Request any
}

// Effect is one decision: puts, deletes and job events that become durable atomically.
// Several effects may share a transaction.
type Effect struct {
	Puts    []Record
	Deletes []Ref
	// Expect are compares on the records of other services.
	Expect []Expect
	Events []JobEvent
}

// Expect compares a key that another service writes with its state at the decision. At
// most one of Create, Mod and Absent is set.
type Expect struct {
	Ref Ref
	// Create or Mod is the revision the key must have.
	Create, Mod int64
	// Absent: the key must not exist.
	Absent bool
}

// Reply answers the Input with the token. Exactly one of Value and Err is set. A core
// may reply steps later. If the leader changes, the caller is sent to the next one.
type Reply struct {
	Token uint64
	Value any
	Err   error
}

// HighestJump is the highest number of a scheduling cycle that executor-state accepts
// in a step of any size. Above it numbers rise in short steps only. The registry
// returns below it if a new leader of executor-state has not seen the higher numbers.
const HighestJump = 1 << 62
