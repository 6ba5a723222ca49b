package replay

import (
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// Standing is the outcome of a batch so far. Every batch has exactly one outcome.
type Standing uint8

// The outcomes. A Granted batch got a lease, a Waiting batch did not. The runner cancelled a
// Withdrawn batch before the batch was granted, because the trace deletes it. An Ended batch
// ended without a lease for another reason.
const (
	Unsent Standing = iota
	Waiting
	Granted
	Withdrawn
	Ended
	standings
)

// version has what the events of a job report about one uid of a batch.
type version struct {
	uid       string
	leased    time.Time
	running   int
	cancelled bool
	ended     bool
}

// outcome has the observations of one batch.
type outcome struct {
	batch *Batch
	// versions are in the order of their first events. Versions before uid belong to an
	// earlier run. Berth itself adds versions after uid when it requeues a refused batch.
	versions []*version
	uid      string
	acked    time.Time
	cancel   bool // the runner has cancelled the batch
}

// outcomes has the observations of all batches. It is safe for concurrent use.
type outcomes struct {
	mu    sync.Mutex
	byKey map[client.Key]*outcome
	order []*outcome
}

func newOutcomes(p *Plan) *outcomes {
	o := &outcomes{byKey: map[client.Key]*outcome{}}
	for _, b := range p.Batches {
		one := &outcome{batch: b}
		o.byKey[b.Key] = one
		o.order = append(o.order, one)
	}
	return o
}

// acked records that Berth accepted a batch and gave it a uid.
func (o *outcomes) acked(b *Batch, uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.byKey[b.Key]
	one.uid, one.acked = uid, time.Now()
}

// cancelled records that a batch was cancelled.
func (o *outcomes) cancelled(b *Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byKey[b.Key].cancel = true
}

// observe records one event of a job.
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
		v.leased = time.Now()
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

// current returns the last version since the batch was accepted. It returns an empty
// version until an event names the uid.
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

// settled reports whether the batch has ended. A batch that runs is settled too, unless
// the runner has cancelled the batch.
func (one *outcome) settled() bool {
	v := one.current()
	return v.ended || !one.cancel && one.standing() == Granted && v.running >= int(one.batch.Workers)
}

// tally has the number of batches with each outcome.
type tally struct {
	count [standings]int
	// cancelled is the number of batches that the runner has cancelled. running is the
	// number of workers that events have reported as running. unsettled is the number of
	// batches that are not settled.
	cancelled, running, unsettled int
	// waits has the wait of each granted batch: the time from the acknowledgement of its
	// request until the event of its lease.
	waits []time.Duration
	// waiting has the batches whose outcome is Waiting.
	waiting map[client.Key]*Batch
}

func (o *outcomes) tally() tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := tally{waiting: map[client.Key]*Batch{}}
	for _, one := range o.order {
		standing, current := one.standing(), one.current()
		t.count[standing]++
		t.running += current.running
		switch standing {
		case Granted:
			t.waits = append(t.waits, max(0, current.leased.Sub(one.acked)))
		case Waiting:
			t.waiting[one.batch.Key] = one.batch
		}
		if one.cancel {
			t.cancelled++
		}
		if !one.settled() {
			t.unsettled++
		}
	}
	return t
}
