package replay

import (
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// Standing is what became of a batch. Every batch has exactly one.
type Standing uint8

// The standings. Withdrawn: the trace deleted it before it was granted. Ended:
// it ended ungranted for another reason.
const (
	Unsent Standing = iota
	Waiting
	Granted
	Withdrawn
	Ended
	standings
)

// version is one uid of a batch, as the events of its job tell.
type version struct {
	uid       string
	leased    time.Time
	running   int
	cancelled bool
	ended     bool
}

// outcome is what is known of one batch.
type outcome struct {
	batch *Batch
	// versions in order of their events; those before uid are of an earlier
	// run. Only Berth itself makes another of them (a refused dispatch).
	versions []*version
	uid      string
	acked    time.Time
	cancel   bool // the trace has deleted it
}

// outcomes is what is known of all batches. It is safe for concurrent use.
type outcomes struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[client.Key]*outcome
	order []*outcome
}

func newOutcomes(p *Plan, now func() time.Time) *outcomes {
	o := &outcomes{now: now, byKey: map[client.Key]*outcome{}}
	for _, b := range p.Batches {
		one := &outcome{batch: b}
		o.byKey[b.Key] = one
		o.order = append(o.order, one)
	}
	return o
}

// acked notes that a batch was accepted, as version uid.
func (o *outcomes) acked(b *Batch, uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.byKey[b.Key]
	one.uid, one.acked = uid, o.now()
}

// cancelled notes that a batch was cancelled.
func (o *outcomes) cancelled(b *Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byKey[b.Key].cancel = true
}

// observe takes one event of a job in.
func (o *outcomes) observe(e *berthv1.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.byKey[client.Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()}]
	if one == nil {
		return
	}
	v := one.version(e.GetUid())
	switch e.GetKind() {
	case berthv1.Event_RESERVATION_LEASED:
		v.leased = o.now()
	case berthv1.Event_WORKER_RUNNING:
		v.running += int(e.GetCount())
	case berthv1.Event_RESERVATION_CANCELLED:
		v.cancelled, v.ended = true, true
	case berthv1.Event_RESERVATION_EXPIRED, berthv1.Event_RESERVATION_REPLACED,
		berthv1.Event_RESERVATION_COMPLETED, berthv1.Event_RESERVATION_FAILED:
		v.ended = true
	}
}

func (one *outcome) version(uid string) *version {
	for _, v := range one.versions {
		if v.uid == uid {
			return v
		}
	}
	v := &version{uid: uid}
	one.versions = append(one.versions, v)
	return v
}

// current is the version that stands for the batch: the last one since it was
// accepted. It is empty while no event has told of it.
func (one *outcome) current() *version {
	for _, v := range one.versions {
		if v.uid == one.uid {
			return one.versions[len(one.versions)-1]
		}
	}
	return &version{uid: one.uid}
}

func (one *outcome) standing() Standing {
	v := one.current()
	switch {
	case one.acked.IsZero():
		return Unsent
	case !v.leased.IsZero():
		return Granted
	case v.cancelled:
		return Withdrawn
	case v.ended:
		return Ended
	}
	return Waiting
}

// settled says whether nothing more is to happen to the batch.
func (one *outcome) settled() bool {
	v := one.current()
	switch {
	case one.cancel:
		return v.ended
	case one.standing() == Granted:
		return v.ended || v.running >= int(one.batch.Workers)
	}
	return v.ended
}

// tally is the standings counted.
type tally struct {
	count [standings]int
	// Cancelled counts the batches that the trace has deleted, Running the
	// workers ever told of as running, unsettled the batches that something is
	// still to happen to.
	cancelled, running, unsettled int
}

func (o *outcomes) tally() tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	var t tally
	for _, one := range o.order {
		t.count[one.standing()]++
		t.running += one.current().running
		if one.cancel {
			t.cancelled++
		}
		if !one.settled() {
			t.unsettled++
		}
	}
	return t
}

// waits are how long each granted batch waited, from the acknowledgement of
// its request until its lease was heard of.
func (o *outcomes) waits() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var waits []time.Duration
	for _, one := range o.order {
		if one.standing() == Granted {
			waits = append(waits, max(0, one.current().leased.Sub(one.acked)))
		}
	}
	return waits
}

// waiting are the batches without a lease, in order.
func (o *outcomes) waiting() []*Batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*Batch
	for _, one := range o.order {
		if one.standing() == Waiting {
			list = append(list, one.batch)
		}
	}
	return list
}
