package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// The events of one effect are bounded in number and in bytes, so that the effect fits
// into a transaction. An event names up to model.MaxEventWorkers workers, each with the
// ID of its executor. The workers of one step are bounded too, so that other requests get
// their turn. The workers of one executor are never divided.
const (
	EventsPerEffect = 64
	eventBytes      = 256 << 10
	WorkersPerStep  = 2048
	// idlePerWorker is how many executors without workers count as one worker.
	idlePerWorker = 16
)

// Pending reports whether events are to be written.
func (r *Requests) Pending() bool { return r.unreported.Len()+r.late.Len() > 0 }

// Notify writes the next events: one for each request, executor and lease with workers
// there. A request may apply to thousands of executors, so its events follow the request
// in effects of their own. Each of these effects moves the request's mark, and the next
// leader continues at the mark. An event names the workers that are on the executor when
// the event is written. A worker that has ended since the request needs no event.
func (r *Requests) Notify(now time.Time) {
	var batches []batch
	left := WorkersPerStep
	for d := range r.unreported.All() {
		if left <= 0 {
			break
		}
		if !d.ExpireAt.IsZero() && !d.ExpireAt.After(now) {
			continue // EndExpired ends the request first
		}
		b := r.nextBatch(d, left)
		left -= 1 + b.workers + b.looks/idlePerWorker
		batches = append(batches, b)
	}
	for e := range r.late.All() {
		if left <= 0 {
			break
		}
		batches = append(batches, batch{executors: []*Executor{e}})
		left -= 1 + e.Leased.Workers
	}
	var executors []*Executor
	for _, b := range batches {
		executors = append(executors, b.executors...)
	}
	workers := r.owner.WorkersOn(executors)
	for _, b := range batches {
		if b.request == nil {
			r.notifyLate(now, b.executors[0], workers[b.executors[0].Ordinal])
		} else {
			r.notify(now, b, workers)
		}
	}
}

// batch holds the executors whose events one step writes. They belong to a request, or to
// one executor that came under requests late.
type batch struct {
	request   *model.Disable
	executors []*Executor
	// workers counts the workers on the executors. looks counts the executors that were
	// looked at.
	workers, looks int
	// last reports whether the request has no executor with workers after these.
	last bool
}

// nextBatch returns the next executors of a request, until they have limit workers. It
// leaves out executors that came under the request late.
func (r *Requests) nextBatch(d *model.Disable, limit int) batch {
	b := batch{request: d}
	from, _, _ := strings.Cut(d.ReportedThrough, "/")
	for e := range r.executorsOf(d, from) {
		b.looks++
		if e.Leased.Workers == 0 || slices.Contains(e.Record.Unreported, d.ID) {
			continue
		}
		if b.workers >= limit {
			return b
		}
		b.executors = append(b.executors, e)
		if e.ID != from { // the events of from may be written already: then the next executor gets its turn
			b.workers += e.Leased.Workers
		}
	}
	b.last = true
	return b
}

// executorsOf iterates over the executors to which a request applies, in order of ID and
// beginning at an ID.
func (r *Requests) executorsOf(d *model.Disable, from string) iter.Seq[*Executor] {
	return func(yield func(*Executor) bool) {
		if len(d.Attributes) == 0 {
			for _, id := range slices.Sorted(slices.Values(d.IDs)) {
				if e := r.owner.Registered(id); e != nil && id >= from && !yield(e) {
					return
				}
			}
			return
		}
		for e := range r.owner.From(from) {
			if e.Class().IsClosedBy(d.ID) && !yield(e) {
				return
			}
		}
	}
}

// notify writes the events of a batch.
func (r *Requests) notify(now time.Time, b batch, workers map[uint32]map[string]*LeaseWorkers) {
	next := *b.request
	var events events
	write := func() {
		d := next
		r.owner.Decide(model.Effect{Puts: []model.Record{&d}, Events: events.list})
		events.list, events.bytes = nil, 0
	}
	for _, e := range b.executors {
		leases := workers[e.Ordinal]
		for _, uid := range slices.Sorted(maps.Keys(leases)) {
			mark := e.ID + "/" + uid
			if compareMarks(mark, next.ReportedThrough) <= 0 {
				continue
			}
			if events.full() {
				write()
			}
			next.ReportedThrough = mark
			events.add(now, &next, e, uid, leases[uid])
		}
	}
	next.ReportedAll = b.last
	if b.last || len(events.list) > 0 {
		write()
	}
}

// notifyLate writes the next events of an executor that came under requests late.
func (r *Requests) notifyLate(now time.Time, e *Executor, leases map[string]*LeaseWorkers) {
	next := *e.Record
	var events events
	uids := slices.Sorted(maps.Keys(leases))
	for len(next.Unreported) > 0 && !events.full() {
		request := next.Unreported[0]
		if d := r.byID[request]; d != nil && d.InForce() && e.Class().IsClosedBy(request) {
			for _, uid := range uids {
				if uid > next.ReportedThrough && !events.full() {
					next.ReportedThrough = uid
					events.add(now, d, e, uid, leases[uid])
				}
			}
			if len(uids) > 0 && next.ReportedThrough < uids[len(uids)-1] {
				break
			}
		}
		next.Unreported, next.ReportedThrough = next.Unreported[1:], ""
	}
	r.owner.Decide(model.Effect{Puts: []model.Record{&next}, Events: events.list})
}

// Late returns the requests whose events are still to be written for an executor that is
// about to register with new attributes. These requests select the new attributes, did
// not select the executor before, and have a mark that has passed the executor.
func (r *Requests) Late(e *Executor, attributes map[string]string) []string {
	if e.Leased.Workers == 0 {
		return nil
	}
	late := slices.Clone(e.Record.Unreported)
	for _, id := range r.ClosedBy(match.AttributesOf(attributes)) {
		d := r.byID[id]
		passed, _, _ := strings.Cut(d.ReportedThrough, "/")
		if !e.Class().IsClosedBy(id) && (d.ReportedAll || e.ID <= passed) && !slices.Contains(late, id) {
			late = append(late, id)
		}
	}
	return late
}

// events collects the events of one effect.
type events struct {
	list  []model.JobEvent
	bytes int
}

func (v *events) full() bool { return len(v.list) == EventsPerEffect || v.bytes >= eventBytes }

func (v *events) add(now time.Time, d *model.Disable, e *Executor, uid string, lease *LeaseWorkers) {
	event := model.JobEvent{
		Kind: model.EventExecutorDisabled, Time: now, Key: lease.Key, UID: uid, Count: int32(len(lease.Workers)),
		Reason: fault.ReasonExecutorDisabled, Message: d.Reason,
		Trace: lease.Trace, Epoch: lease.Epoch,
	}
	if d.Drain {
		event.Reason = fault.ReasonExecutorDraining
	}
	for _, worker := range lease.Workers[:min(len(lease.Workers), model.MaxEventWorkers)] {
		event.Workers = append(event.Workers, model.EventWorker{ID: worker, Executor: e.ID})
	}
	v.list = append(v.list, event)
	v.bytes += len(event.Message) + len(event.Workers)*(len(e.ID)+24) + 512
}

// compareMarks orders marks by executor, then by lease.
func compareMarks(a, b string) int {
	aID, aUID, _ := strings.Cut(a, "/")
	bID, bUID, _ := strings.Cut(b, "/")
	return cmp.Or(cmp.Compare(aID, bID), cmp.Compare(aUID, bUID))
}
