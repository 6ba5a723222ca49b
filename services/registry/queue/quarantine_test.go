package queue

import (
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// without replaces the core by a successor for which the records that missed selects are
// quarantined.
func (w *world) without(term int64, missed func(model.Ref) bool) []model.Action {
	w.core = New(w.core.config)
	for _, ref := range w.refs() {
		if missed(ref) {
			w.step(model.Quarantined{Ref: ref})
			continue
		}
		s := w.records[ref]
		w.step(model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod})
	}
	w.revision++
	w.step(model.Progress{Revision: w.revision})
	return w.step(model.Elected{Term: term, Revision: w.revision})
}

func one(job, stage string) model.Upsert {
	return model.Upsert{Key: model.Key{Job: job, Stage: stage, Name: "main"}, Count: 1}
}

func refused(actions []model.Action) bool {
	for _, action := range actions {
		if reply, ok := action.(model.Reply); ok {
			return fault.Is(reply.Err, fault.ReasonPoison)
		}
	}
	return false
}

// A quarantined reservation does not block other reservations. In its stage, nothing
// changes that may contradict the quarantined record.
func TestQuarantinedReservation(t *testing.T) {
	w := newWorld(Config{})
	w.successor(7)
	w.input(one("a", "s"))
	w.input(one("b", "s"))
	w.input(one("a", "other"))
	w.input(request.Cancel{Key: one("a", "other").Key})
	stage := model.Ref{Kind: model.KindStage, Key: model.Key{Job: "a", Stage: "s"}}
	w.without(9, func(ref model.Ref) bool { return ref.Kind == model.KindReservation && ref.Key == one("a", "s").Key })

	if len(w.cycle.Candidates) != 1 || w.cycle.Candidates[0].Key != one("b", "s").Key {
		t.Errorf("the cycle has %+v, want only b", w.cycle.Candidates)
	}
	for name, request := range map[string]any{
		"upsert": one("a", "s"), "cancel": request.Cancel{Key: one("a", "s").Key}, "job": request.CancelJob{Job: "a"},
		"workers": request.CancelWorkers{Job: "a", Stage: "s", Workers: []model.WorkerID{{Number: 1}}},
		"flush":   request.Flush{Job: "a"},
	} {
		if !refused(w.input(request)) {
			t.Errorf("%s is not refused", name)
		}
	}
	if refused(w.input(one("a", "other"))) || refused(w.input(request.CancelJob{Job: "b"})) {
		t.Error("a request for another stage is refused")
	}
	w.input(request.Cancel{Key: one("a", "other").Key})
	w.now = w.now.Add(2 * model.KeepTerminal)
	w.step(nil)
	if _, there := w.records[stage]; !there {
		t.Error("the record of its stage was deleted")
	}
	w.successor(11)
	if view, ok := w.core.Get(one("a", "s").Key); !ok || view.Reservation.State != model.Queued || view.Position == 0 {
		t.Errorf("after the quarantine: %+v", view)
	}
}

// If the task or the lease of a version is quarantined, the core does not treat the version
// as ended.
func TestQuarantinedTaskEndsNothing(t *testing.T) {
	w := newWorld(Config{})
	w.successor(7)
	w.input(one("a", "s"))
	uid := w.cycle.Candidates[0].UID
	header := &model.TaskHeader{UID: uid, Key: one("a", "s").Key, Complete: true}
	w.foreign(model.Changed{Ref: header.Ref(), Record: header})
	w.now = w.now.Add(noteWithin)
	w.step(nil)
	ref := model.Ref{Kind: model.KindReservation, Key: one("a", "s").Key, ID: uid}
	before := w.records[ref]
	if before.record.(*model.Reservation).State != model.Active {
		t.Fatalf("%+v", before)
	}
	w.without(9, func(ref model.Ref) bool { return ref.Kind == model.KindTaskHeader })
	w.now = w.now.Add(time.Hour)
	w.step(nil)
	if w.records[ref].mod != before.mod {
		t.Errorf("the record changed to %+v", w.records[ref].record)
	}
	w.write(model.Changed{Ref: header.Ref()})
	if w.successor(11); w.records[ref].mod == before.mod {
		t.Error("a version whose task was deleted did not change")
	}
}

// order is an order that panics once it is broken.
type order struct {
	scheduler.OrderByEpoch
	broken *bool
}

func (o order) Compare(a, b scheduler.Rank) int {
	if *o.broken {
		panic("no idea")
	}
	return o.OrderByEpoch.Compare(a, b)
}

// If a decision without a request panics, Subject returns the decision's reservation.
func TestSubjectOfADecision(t *testing.T) {
	broken := false
	w := newWorld(Config{Scheduling: scheduler.Config{Order: order{broken: &broken}}})
	w.successor(7)
	w.input(one("a", "s"))
	entry := w.cycle.Candidates[0]
	lease := &model.LeaseChunk{UID: entry.UID, Key: entry.Key, Chunks: 1, Total: 1,
		Workers: []model.Placement{{Worker: model.WorkerID{Number: 1}}}}
	w.foreign(model.Changed{Ref: lease.Ref(), Record: lease})
	defer func() {
		if what := recover(); what != "no idea" {
			t.Errorf("recovered %v", what)
		}
		if want := (model.Ref{Kind: model.KindReservation, Key: entry.Key, ID: entry.UID}); w.core.Subject() != want {
			t.Errorf("the subject is %+v, want %+v", w.core.Subject(), want)
		}
	}()
	broken = true
	w.step(DispatchDone{Outcomes: []model.DispatchOutcome{{UID: entry.UID, Reason: fault.ReasonStale}}})
}
