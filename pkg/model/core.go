package model

import "time"

// Core is the interface of the three cores. A core is a deterministic state machine
// without clock, I/O, goroutines or locks. One goroutine owns a core and calls it.
//
// The state of a core depends only on the records that the core received. A single
// function sets a record in the core's memory, both for records from the store's view
// (Changed) and for the core's own decisions (the Effects that it returns). A decision
// changes memory at once, although the decision is not durable yet, so that many
// decisions can share one transaction. Committed tells the core that its first decisions
// are durable. After Abandoned the core undoes all decisions that are not durable by
// setting the earlier records again. There is no other undo.
type Core interface {
	// Step processes one event and returns the actions for it, in order. A nil event means
	// that time has passed. The loop carries out an action that follows an Effect only once
	// that Effect is durable.
	Step(now time.Time, event Event) []Action
	// NextDeadline returns the time at which the core needs a Step with a nil event, or the
	// zero time if it needs none.
	NextDeadline() time.Time
}

// Event is an input of a core. The types in this file are common to all cores; each core
// adds its own types.
type Event any

// Action is an output of a core: an Effect, a Reply, or a type of that core.
type Action any

// Changed reports the change of one record in the store's view. A core receives changes
// in order of revision. A core that does not lead receives the changes of all records. A
// leading core does not receive the changes of its own commits. For the kinds of records
// that it writes, it receives only other changes, such as the end of an etcd lease.
type Changed struct {
	Ref Ref
	// Record is nil if the key was deleted.
	Record Record
	// Create and Mod are the create and mod revisions of the key. For a deletion, Mod is the
	// revision of the deletion.
	Create, Mod int64
}

// Elected tells the core that its replica leads from now on, and that the view has
// reached the revision of the election. From then on the core may decide.
type Elected struct {
	Term int64
	// Revision is the revision of the view.
	Revision int64
}

// Committed tells the core that a transaction at Revision made effects durable: the first
// Effects of the effects that were not durable before.
type Committed struct {
	Effects  int
	Revision int64
}

// Abandoned tells the core that none of its uncommitted effects becomes durable. The core
// must undo them. It receives again the events that caused them.
type Abandoned struct{}

// Quarantined tells the core that a record is quarantined. There are two cases. The
// record exists but the core does not receive it, because the record cannot be decoded or
// because it made the core panic. Or the core receives the record, but a decision about
// the record made the core panic. In both cases the core must not free capacity that the
// record may use, and must not start anything for the record. This holds whatever else
// the core knows about the same object.
//
// A core receives Quarantined only while it does not lead. The quarantine applies for the
// life of the core: if the set of quarantined records changes, the loop builds a new
// core.
type Quarantined struct {
	Ref Ref
}

// QuarantineCore is a core that can run while some records are quarantined.
type QuarantineCore interface {
	Core
	// Subject returns the record about which the core was deciding in the current step or in
	// the last one. It returns the zero Ref if the core decided only about the record in the
	// event. If a step panics, the record that Subject returns is the cause.
	Subject() Ref
	// CanMiss reports whether the core stays correct if it receives Quarantined instead of
	// the record with that Ref.
	CanMiss(ref Ref) bool
}

// LeaderTerm is the stored term of another service's leader. A core receives it before a
// request with a term that the view has not reached yet. A core ignores it if its view
// has reached the term.
type LeaderTerm struct {
	Service string
	Term    int64
}

// Progress tells the core that the view has reached a revision: the core has received all
// changes up to this revision. Progress follows the changes of each batch.
type Progress struct {
	Revision int64
}

// Input is a request. The core must answer it with a Reply that has the same token.
type Input struct {
	Token   uint64
	Request any
}

// Effect is one decision: puts, deletes and job events that become durable atomically.
// Several effects may share a transaction.
type Effect struct {
	Puts    []Record
	Deletes []Ref
	// Expect has compares on records of other services. If one of them fails, the effect
	// does not become durable.
	Expect []Expect
	Events []JobEvent
}

// Expect compares a key that another service writes with the state on which the core
// decided. At most one of Create, Mod and Absent is set.
type Expect struct {
	Ref Ref
	// Create or Mod is the revision that the key must have.
	Create, Mod int64
	// Absent is set if the key must not exist.
	Absent bool
}

// Reply answers the Input with the token. Exactly one of Value and Err is set. A core may
// reply several steps later. If the term ends before the reply, the caller gets an error
// that says that the request may have been applied.
type Reply struct {
	Token uint64
	Value any
	Err   error
}

// HighestJump is the highest number of a scheduling cycle that executor-state accepts
// regardless of the numbers before it. Above HighestJump executor-state accepts a number
// only if it is little higher than the highest number that it has seen. If a new leader
// of executor-state has not seen these numbers, the registry continues with a lower
// number.
const HighestJump = 1 << 62
