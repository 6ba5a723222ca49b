package model

import "time"

// Core is the one shape of the three cores: a deterministic machine without
// clock, I/O, goroutine or lock. One goroutine owns it and calls it.
//
// Everything a core knows is a function of the records it was told of. It
// changes its memory by setting records, in one function, whichever way they
// came: from the store's view (Changed), or from its own decisions (the
// Effects it returns). A decision moves memory at once and tentatively, so
// that many decisions share one transaction; Committed makes the first of them
// durable, Abandoned takes back all that are not, by setting the earlier
// records again. There is no other undo.
type Core interface {
	// Step takes one event and answers what is to be done, in order. A nil
	// event means that time has passed. An action after an Effect is carried
	// out only once that Effect is durable.
	Step(now time.Time, event Event) []Action
	// NextDeadline is when the core wants to be stepped with a nil event;
	// zero when it waits for nothing.
	NextDeadline() time.Time
}

// Event is what a core is told. The types in this file are common to all
// cores, others belong to one.
type Event any

// Action is what a core wants done: an Effect, a Reply, or one of its own.
type Action any

// Changed tells of one record in the store's view, in order of revision. A core
// that does not lead takes records of every kind; one that leads is told of its
// own kinds only where its own commits were not the cause (an etcd lease that
// ran out).
type Changed struct {
	Ref Ref
	// Record is nil when the key was deleted.
	Record Record
	// Create and Mod are the key's revisions; Mod that of the deletion.
	Create, Mod int64
}

// Elected tells a core that its replica leads from now on, and that its view
// has reached the revision of the win. From now on it may decide.
type Elected struct {
	Term int64
	// Revision is what the view has reached.
	Revision int64
}

// Committed tells that the first Effects effects not yet committed are durable,
// all of them by the transaction of this revision.
type Committed struct {
	Effects  int
	Revision int64
}

// Abandoned tells that no effect which is not committed will be. The core takes
// them back; the inputs they came from are given again.
type Abandoned struct{}

// Held tells a core that a record is to be left alone: the record may be there
// and not be told, for it cannot be read or made the core panic; or it is told,
// and what follows from it made the core panic. The core neither frees what the
// record may hold nor starts anything for it, whatever else it knows of what
// the record belongs to.
//
// It is told while the core does not lead, and stands for the life of the core:
// when what is left alone changes, the core is built afresh.
type Held struct {
	Ref Ref
}

// Holder is a core that can go on beside what it is not to touch.
type Holder interface {
	Core
	// Subject is the record that the core, in the step under way or the last
	// one, was deciding about; zero for none but what its event names. When a
	// step panics, that is to blame.
	Subject() Ref
	// CanMiss says whether the core stays right when it is told Held of a record
	// in place of the record.
	CanMiss(ref Ref) bool
}

// Leads tells a core the term of another service's leader as the store holds it,
// ahead of the view: a request names that term, and the view has not shown it yet.
// A core ignores it when its view has reached the term.
type Leads struct {
	Service string
	Term    int64
}

// Progress tells that the view has reached a revision: everything up to it was
// told. It is given after the changes of each batch.
type Progress struct {
	Revision int64
}

// Input is a request that wants a Reply with its token.
type Input struct {
	Token   uint64
	Request any
}

// Effect is one decision: puts, deletes and job events that become durable
// together or not at all. Several effects share a transaction where they fit.
type Effect struct {
	Puts    []Record
	Deletes []Ref
	// Expect are compares on what other services decide.
	Expect []Expect
	Events []JobEvent
}

// Expect compares a key that another service writes, as it was decided on. At
// most one of Create, Mod and Absent is set.
type Expect struct {
	Ref Ref
	// Create or Mod is the revision the key must have.
	Create, Mod int64
	// Absent: the key must not be there.
	Absent bool
}

// Reply answers the Input with the token. Exactly one of Value and Err is set.
// Cores may reply steps later; on a change of leader whoever waits is told to
// ask the next one.
type Reply struct {
	Token uint64
	Value any
	Err   error
}

// HighestJump is the highest number of a scheduling cycle that executor-state accepts
// in any step. Above it numbers rise in short steps only, and the registry returns
// below it if a new leader has not seen them.
const HighestJump = 1 << 62
