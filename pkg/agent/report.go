package agent

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// scope selects the workers that a report lists.
type scope int

const (
	// changes selects the workers whose state was not reported yet.
	changes scope = iota
	// unconfirmed selects the workers whose state no answer has confirmed.
	unconfirmed
	// complete selects all workers.
	complete
)

// report returns the next report, or nil if the report would list no workers and is not
// complete.
func (l *ledger) report(s scope) *controlv1.ExecutorReport {
	var due []*entry
	for _, e := range l.entries {
		if e.due(s) {
			due = append(due, e)
		}
	}
	if len(due) == 0 && s != complete {
		return nil
	}
	slices.SortFunc(due, func(a, b *entry) int { return a.compare(b.identity) })
	l.sequence++
	r := &controlv1.ExecutorReport{
		Executor: l.executor, Incarnation: l.incarnation,
		Sequence: l.sequence, Complete: s == complete,
	}
	for _, e := range due {
		if e.sent == 0 {
			e.sent = l.sequence
		}
		r.Workers = append(r.Workers, e.wire())
	}
	return r
}

// answered processes the answer to a report. The answer also covers all earlier reports,
// because the control plane processes the reports of a stream in order, and a stream
// begins with a complete report. The ledger deletes the entries of the ends that the
// answer acknowledges and returns their workers. It keeps the tombstones of these
// workers.
func (l *ledger) answered(answer *controlv1.ExecutorReportAnswer) (forgotten []identity) {
	for _, e := range l.entries {
		if e.sent > 0 && e.sent <= answer.GetSequence() && !e.state.Terminal() {
			e.confirmed = true
		}
	}
	for _, w := range answer.GetEnded() {
		id := identity{model.Worker{Job: w.GetJob(), Stage: w.GetStage(),
			ID: model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}}, w.GetEpoch()}
		if e := l.entries[id]; e != nil && e.state.Terminal() {
			delete(l.entries, id)
			forgotten = append(forgotten, id)
		}
	}
	return forgotten
}

// next returns the next sequence, for an answer to a request.
func (l *ledger) next() int64 {
	l.sequence++
	return l.sequence
}

// due reports whether a report of that scope lists the worker. Unless its start was queued,
// a worker that is being started is only in complete reports, because the answer to its
// start request contains its state.
func (e *entry) due(s scope) bool {
	reports := e.state != model.WorkerStarting || e.listed
	switch s {
	case changes:
		return reports && e.sent == 0 && !e.answered
	case unconfirmed:
		return reports && !e.confirmed
	}
	return true
}

// hasUnconfirmed reports whether there is a change that no answer has confirmed.
func (l *ledger) hasUnconfirmed() bool {
	for _, e := range l.entries {
		if e.due(unconfirmed) {
			return true
		}
	}
	return false
}

func (e *entry) wire() *controlv1.WorkerReport {
	w := &controlv1.WorkerReport{
		Job: e.Job, Stage: e.Stage, Index: e.ID.Index, Number: e.ID.Number, Epoch: e.Epoch, Uid: e.uid,
		State: berthv1.Assignment_State(e.state), ExitCode: e.exitCode, Signal: e.signal, Error: e.problem,
		Reason: string(e.reason), Since: timestamppb.New(e.since), NeverStarted: e.state.Terminal() && !e.launched,
		BadTask: e.badTask, Host: e.host,
	}
	if e.state == model.WorkerStarting && e.queued {
		w.Since = nil
	}
	return w
}

func (i identity) compare(o identity) int {
	return cmp.Or(cmp.Compare(i.Job, o.Job), cmp.Compare(i.Stage, o.Stage), i.ID.Compare(o.ID),
		cmp.Compare(i.Epoch, o.Epoch))
}
