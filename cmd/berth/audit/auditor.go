package audit

import (
	"cmp"
	"fmt"
	"slices"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// Rule names a rule. The package comment describes each.
type Rule string

// The rules.
const (
	RuleCapacity         Rule = "CAPACITY"
	RuleShare            Rule = "SHARE"
	RuleAllOrNone        Rule = "ALL_OR_NONE"
	RuleAvoid            Rule = "AVOID"
	RuleSpread           Rule = "SPREAD"
	RuleOneAssignment    Rule = "ONE_ASSIGNMENT"
	RuleOnePerIndex      Rule = "ONE_PER_INDEX"
	RulePlacement        Rule = "PLACEMENT"
	RuleWorkerState      Rule = "WORKER_STATE"
	RuleStartedTwice     Rule = "STARTED_TWICE"
	RuleReservationState Rule = "RESERVATION_STATE"
	RuleImmutable        Rule = "IMMUTABLE"
	RuleNeverLost        Rule = "NEVER_LOST"
	RuleNoRevival        Rule = "NO_REVIVAL"
	RuleRelease          Rule = "RELEASE"
	RuleTerm             Rule = "TERM"
	RuleFence            Rule = "FENCE"
	RuleOrder            Rule = "ORDER"
	RuleCycle            Rule = "CYCLE"
	RuleOrigin           Rule = "ORIGIN"
	RuleHold             Rule = "HOLD"
	RuleOffer            Rule = "OFFER"
	RuleVolumeHome       Rule = "VOLUME_HOME"
	RuleVolumeOne        Rule = "VOLUME_ONE"
	RuleVolumeKept       Rule = "VOLUME_KEPT"
	RuleRecord           Rule = "RECORD"
	RuleLeaseOwner       Rule = "LEASE_OWNER"
	RuleTaskOwner        Rule = "TASK_OWNER"
)

// Violation is a rule that a revision broke.
type Violation struct {
	Revision int64  `json:"revision"`
	Rule     Rule   `json:"rule"`
	Message  string `json:"message"`
}

func (v Violation) String() string {
	return fmt.Sprintf("revision %d: %s: %s", v.Revision, v.Rule, v.Message)
}

// MaxViolations is the maximum number of violations that an auditor stores. Count includes
// the others too.
const MaxViolations = 100

// Auditor audits a history. Unlike a Follower, it is not safe for concurrent use.
type Auditor struct {
	space keyspace.Space

	keys      map[string]int64 // modification revision of every record
	versions  map[string]*version
	gangs     map[model.Key]map[*version]bool // versions with leases, by reservation
	executors map[uint32]*executor            // by ordinal
	ordinals  map[string]uint32               // by executor id
	stages    map[model.Key]stage
	numbers   map[model.Key]model.WorkerSet // highest used numbers, by stage
	// volumes has the chunks of volumes, and leasedOn the leased workers on volumes.
	volumes  map[model.Ref]*model.VolumeChunk
	leasedOn map[seat][]leasedWorker
	groups   map[string]*group
	terms    map[string]int64 // highest, by service
	leads    map[string]int64 // term of the current leader, by service; 0 without a leader
	// cut is the latest start revision of the cycles whose grants the current leader of
	// executor-state wrote.
	cut int64

	violations []Violation
	count      int
	stats      Stats

	step step
}

// step collects the changes of one revision. The checks run after all changes are applied.
type step struct {
	revision int64
	// jump is set for a snapshot. The auditor has not seen the revisions right before it.
	jump      bool
	touched   []*version
	accepted  []*version       // reservations that were accepted
	split     []split          // reservations whose workers changed
	requeued  []requeued       // reservations that record other workers as queued again
	granted   []*version       // reservations whose lease was created
	grown     []*version       // reservations whose task got a new record
	completed []*version       // reservations whose task was completed
	removed   []removal        // placements that were released
	used      map[uint32]usage // use of the changed executors before this revision
	// returned has the executors that were LOST before this revision and no longer are.
	returned map[uint32]bool
	// imposed has what volumes use of executors because their disks came there.
	imposed map[uint32]resource.Vector
	// seats has the worker indexes whose lease on a volume or whose volume changed. changed has
	// the changed volumes.
	seats   map[seat]bool
	changed []volumeChange
	begun   []*workerIndex   // worker indexes that got an assignment
	offered []*version       // versions whose offer changed
	writers map[string]bool  // services whose records changed
	chained map[string]int64 // term that the revision wrote to the chain, by service
	// numbers has the highest used numbers before this revision, of the stages that it changed.
	numbers map[model.Key]model.WorkerSet
	// requeues has the workers of the requeues that were accepted.
	requeues map[model.Worker]*workerIndex
}

// New returns an auditor that has not seen any history of its cluster yet.
func New(space keyspace.Space) *Auditor {
	return &Auditor{
		space:     space,
		keys:      map[string]int64{},
		versions:  map[string]*version{},
		gangs:     map[model.Key]map[*version]bool{},
		executors: map[uint32]*executor{},
		ordinals:  map[string]uint32{},
		stages:    map[model.Key]stage{},
		numbers:   map[model.Key]model.WorkerSet{},
		volumes:   map[model.Ref]*model.VolumeChunk{},
		leasedOn:  map[seat][]leasedWorker{},
		groups:    map[string]*group{},
		terms:     map[string]int64{},
		leads:     map[string]int64{},
	}
}

// Apply audits a batch of a store's view or watch: a snapshot if Reset is set, and
// otherwise one revision after another.
func (a *Auditor) Apply(batch store.Batch) {
	if batch.Reset {
		a.reset(batch)
	}
	for rest := batch.Changes; !batch.Reset && len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Mod == rest[0].Mod {
			n++
		}
		a.apply(rest[0].Mod, rest[:n], false)
		rest = rest[n:]
	}
	a.stats.Revision = max(a.stats.Revision, batch.Revision)
}

// reset applies a snapshot: all differences from the current state count as the changes of
// one revision.
func (a *Auditor) reset(batch store.Batch) {
	a.stats.Snapshots++
	present := make(map[string]bool, len(batch.Changes))
	var changes []store.Change
	for _, c := range batch.Changes {
		present[c.Key] = true
		if a.keys[c.Key] != c.Mod {
			changes = append(changes, c)
		}
	}
	for key := range a.keys {
		if !present[key] {
			changes = append(changes, store.Change{KV: store.KV{Key: key, Mod: batch.Revision}, Deleted: true})
		}
	}
	// Iteration over a map has no order, and the order of violations must not vary.
	slices.SortFunc(changes, func(x, y store.Change) int { return cmp.Compare(x.Key, y.Key) })
	a.apply(batch.Revision, changes, true)
}

// change is a put of a record, or its deletion if the record is nil.
type change struct {
	ref    model.Ref
	record model.Record
	store.KV
}

// apply applies one revision and checks it.
func (a *Auditor) apply(revision int64, raw []store.Change, jump bool) {
	a.step = step{
		revision: revision, jump: jump,
		used: map[uint32]usage{}, returned: map[uint32]bool{}, imposed: map[uint32]resource.Vector{}, seats: map[seat]bool{},
		writers: map[string]bool{}, chained: map[string]int64{},
		numbers: map[model.Key]model.WorkerSet{}, requeues: map[model.Worker]*workerIndex{},
	}
	for _, c := range a.decode(raw) {
		a.set(c)
	}
	a.checkCapacity()
	a.checkIndexes()
	a.checkSeats()
	if !jump {
		a.checkVolumes()
		a.checkFence()
		a.checkLeases()
		a.checkTasks()
		a.checkReleases()
		a.checkSplits()
		a.checkOrigins()
		a.checkBound()
		a.checkRequeued()
		a.checkOrder()
	}
	a.checkOffers()
	for _, v := range a.step.touched {
		v.touched, v.was = false, nil
		if !v.queued() {
			v.positions = nil
		}
		if v.empty() {
			delete(a.versions, v.uid)
		}
	}
}

// decode returns the records among the changes in order of kind, so that a record comes
// after the records to which it refers.
func (a *Auditor) decode(raw []store.Change) []change {
	changes := make([]change, 0, len(raw))
	for _, c := range raw {
		ref, ok := a.space.Parse(c.Key)
		if !ok {
			continue
		}
		next := change{ref: ref, KV: c.KV}
		if !c.Deleted && ref.Kind != model.KindChain {
			var err error
			if next.record, err = wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease); err != nil {
				a.violate(RuleRecord, "%v", err)
				continue
			}
		}
		changes = append(changes, next)
		if c.Deleted {
			delete(a.keys, c.Key)
		} else {
			a.keys[c.Key] = c.Mod
		}
	}
	slices.SortStableFunc(changes, func(x, y change) int { return cmp.Compare(x.ref.Kind, y.ref.Kind) })
	return changes
}

// set applies the change of one record.
func (a *Auditor) set(c change) {
	// The deletion of a presence is not a write of a service: etcd deletes the key with its
	// etcd lease.
	if c.ref.Kind != model.KindLive || c.record != nil {
		a.step.writers[keyspace.Writer(c.ref.Kind)] = true
	}
	switch c.ref.Kind {
	case model.KindLeader:
		a.setLeader(c)
	case model.KindChain:
		a.setChain(c)
	case model.KindReservation:
		r, _ := c.record.(*model.Reservation)
		a.setReservation(c.ref, r)
	case model.KindStage:
		if c.record == nil || a.lastRecordDeleted(c.ref.Key.Job) {
			a.forgetStage(c.ref.Key)
		}
		s, _ := c.record.(*model.Stage)
		a.setNumbers(c.ref.Key, s)
	case model.KindExecutor:
		e, _ := c.record.(*model.Executor)
		a.setExecutor(c.ref.ID, e, c.Mod)
	case model.KindLeaseChunk:
		l, _ := c.record.(*model.LeaseChunk)
		a.setLease(c.ref, l)
	case model.KindVolumeChunk:
		v, _ := c.record.(*model.VolumeChunk)
		a.setVolumes(c.ref, v)
	case model.KindOffer:
		o, _ := c.record.(*model.Offer)
		a.setOffer(c.ref, o)
	case model.KindTaskHeader:
		h, _ := c.record.(*model.TaskHeader)
		a.setHeader(c.ref, h)
	case model.KindTaskChunk:
		t, _ := c.record.(*model.TaskChunk)
		a.setTask(c.ref, t)
	}
}

func (a *Auditor) violate(rule Rule, format string, args ...any) {
	a.count++
	if len(a.violations) < MaxViolations {
		a.violations = append(a.violations, Violation{a.step.revision, rule, fmt.Sprintf(format, args...)})
	}
}
