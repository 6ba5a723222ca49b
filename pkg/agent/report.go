package agent

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// scope is how much a report is to tell.
type scope int

const (
	// news: the states that nobody was told of yet.
	news scope = iota
	// untold: what no answer has confirmed, ends above all.
	untold
	// everything: the complete report.
	everything
)

// report makes the next report, nil when there is nothing to tell.
func (l *ledger) report(s scope) *controlv1.ExecutorReport {
	var due []*entry
	for _, e := range l.entries {
		if e.due(s) {
			due = append(due, e)
		}
	}
	if len(due) == 0 && s != everything {
		return nil
	}
	slices.SortFunc(due, func(a, b *entry) int { return a.compare(b.identity) })
	l.sequence++
	r := &controlv1.ExecutorReport{
		Executor: l.executor, Incarnation: l.incarnation,
		Sequence: l.sequence, Complete: s == everything,
	}
	for _, e := range due {
		if e.sent == 0 {
			e.sent = l.sequence
		}
		r.Workers = append(r.Workers, e.wire())
	}
	return r
}

// answered takes in the answer to the report of that sequence. It covers the
// reports before it too: those of a stream are taken in order, and a stream
// begins with a complete one. What the answer names as ended is forgotten but for
// its tombstone, and returned.
func (l *ledger) answered(answer *controlv1.ExecutorReportAnswer) (forgotten []identity) {
	for _, e := range l.entries {
		if e.sent > 0 && e.sent <= answer.GetSequence() && !e.state.Terminal() {
			e.told = true
		}
	}
	for _, w := range answer.GetEnded() {
		id := identity{model.Worker{Job: w.GetJob(), Stage: w.GetStage(), ID: model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}}, w.GetEpoch()}
		if e := l.entries[id]; e != nil && e.state.Terminal() {
			l.leave(id)
			forgotten = append(forgotten, id)
		}
	}
	return forgotten
}

// next takes the next sequence, for an answer to an order.
func (l *ledger) next() int64 {
	l.sequence++
	return l.sequence
}

// buriedReport is how a worker is answered that is not there and never will be.
func buriedReport(t tombstone, uid string) *controlv1.WorkerReport {
	e := entry{identity: t.identity, uid: uid, state: model.WorkerEvicted, since: t.At}
	return e.wire()
}

// due says whether a report of that scope lists the worker. One that is being
// started is told of in the answer to its order.
func (e *entry) due(s scope) bool {
	switch s {
	case news:
		return e.state != model.WorkerStarting && e.sent == 0 && !e.shown
	case untold:
		return e.state != model.WorkerStarting && !e.told
	}
	return true
}

// owes says whether there is anything that no answer has confirmed.
func (l *ledger) owes() bool {
	for _, e := range l.entries {
		if e.due(untold) {
			return true
		}
	}
	return false
}

func (e *entry) wire() *controlv1.WorkerReport {
	return &controlv1.WorkerReport{
		Job: e.Job, Stage: e.Stage, Index: e.ID.Index, Number: e.ID.Number, Epoch: e.Epoch, Uid: e.uid,
		State: berthv1.Assignment_State(e.state), ExitCode: e.exitCode, Signal: e.signal, Error: e.problem,
		Since: timestamppb.New(e.since),
	}
}

func (i identity) compare(o identity) int {
	return cmp.Or(cmp.Compare(i.Job, o.Job), cmp.Compare(i.Stage, o.Stage), i.ID.Compare(o.ID), cmp.Compare(i.Epoch, o.Epoch))
}
