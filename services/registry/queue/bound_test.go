package queue

import (
	"fmt"
	"strings"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// txnBytes is the largest request that etcd accepts.
const txnBytes = 1536 << 10

// watched returns a world that checks the size of each effect when it is stored.
func watched(t *testing.T, config Config) *world {
	w := newWorld(config)
	w.measure = func(effect model.Effect) {
		bytes := 0
		for _, record := range effect.Puts {
			value, err := wire.Encode(record)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(value) + 200
		}
		if bytes > txnBytes*9/10 {
			t.Errorf("an effect of %d records takes %d bytes", len(effect.Puts), bytes)
		}
	}
	w.step(model.Elected{Term: 101, Revision: 101})
	return w
}

// large returns a request whose labels have the given number of bytes in total.
func large(name string, bytes int) model.Upsert {
	u := model.Upsert{Key: model.Key{Job: "j", Stage: name, Name: "main"}, Count: 8,
		Spec: model.Spec{Labels: map[string]string{}}}
	for i := range 64 {
		u.Spec.Labels[fmt.Sprintf("label-%02d", i)] = strings.Repeat("x", bytes/64)
	}
	return u
}

// Even the largest reservation that the registry accepts leaves space for later decisions.
// The registry can split, refuse, requeue and flush it, and can cancel it with its job. The
// registry rejects a larger request, and the error names the largest field.
func TestAcceptedRequestsFitLaterDecisions(t *testing.T) {
	w := watched(t, Config{BestEffort: true})
	w.input(large("s0", 600<<10))
	first := w.core.byKey[model.Key{Job: "j", Stage: "s0", Name: "main"}][0].uid
	w.step(scheduler.CycleDone{Cycle: 1, Outcomes: []model.Outcome{{UID: first, Result: model.NoFit, Fitting: 3}}})
	if n := len(w.core.byKey[model.Key{Job: "j", Stage: "s0", Name: "main"}]); n != 2 {
		t.Fatalf("the batch was not split: %d versions", n)
	}
	for i := range 6 {
		w.input(large(fmt.Sprintf("s%d", i+1), 600<<10))
	}
	w.input(request.Flush{Job: "j"})
	if groups := w.pending(); len(groups) != 0 {
		t.Errorf("after the flush %+v are pending", groups)
	}
	for i := range 6 {
		w.input(large(fmt.Sprintf("t%d", i), 600<<10))
	}
	returned := w.core.byKey[model.Key{Job: "j", Stage: "t0", Name: "main"}][0]
	w.bring(returned.uid, isActive)
	w.giveUp(returned.uid, 1)
	if !returned.r.Requeued.Has(model.WorkerID{Index: 1, Number: 1}) {
		t.Error("no worker was requeued")
	}
	w.input(request.CancelJob{Job: "j"})
	if groups := w.pending(); len(groups) != 0 {
		t.Errorf("after the cancel %+v are pending", groups)
	}

	replies := w.input(large("u", 900<<10))
	err := replies[len(replies)-1].(model.Reply).Err
	if f := fault.Of(err); err == nil || f.Kind != fault.Invalid || f.Reason != fault.ReasonTooLarge ||
		f.Fields[0].Name != "labels" {
		t.Errorf("900 KiB of labels: %v", err)
	}
}

// A worker index that has used all its numbers is not requeued. Its number therefore never
// wraps, and requeues end.
func TestNumbersDoNotWrap(t *testing.T) {
	last := []model.WorkerID{{Index: 0, Number: model.MaxNumber}}
	key := model.Key{Job: "j", Stage: "s", Name: "main"}
	w := watched(t, Config{})
	w.input(model.Upsert{Key: key, Count: 1, Spec: model.Spec{MaxAttempts: 5}})
	uid := w.core.byKey[key][0].uid
	// Simulate more than seventy million requeues of this worker.
	requeued := *w.core.versions[uid].r
	requeued.Workers = model.WorkerSetOf(last)
	w.foreign(
		model.Changed{Ref: requeued.Ref(), Record: &requeued},
		model.Changed{Ref: model.Ref{Kind: model.KindStage, Key: stageKey(key)},
			Record: &model.Stage{Job: "j", Stage: "s", Numbers: requeued.Workers}},
	)
	w.foreign(
		model.Changed{Ref: model.Ref{Kind: model.KindTaskHeader, ID: uid},
			Record: &model.TaskHeader{UID: uid, Key: key, Complete: true}},
		model.Changed{Ref: model.Ref{Kind: model.KindTaskChunk, ID: uid},
			Record: &model.TaskChunk{UID: uid, Workers: []model.TaskWorker{
				{ID: last[0], State: model.WorkerFailed, Requeue: true},
			}}},
	)
	if n := len(w.core.byKey[key]); n != 1 {
		t.Errorf("%d versions, want 1", n)
	}
	w.input(request.Cancel{Key: key})
	replies := w.input(model.Upsert{Key: key, Count: 1})
	if err := replies[len(replies)-1].(model.Reply).Err; !fault.Is(err, fault.ReasonWorkerIDUsed) {
		t.Errorf("a count that includes an index without free numbers: %v", err)
	}
}

// Precedence also holds while the core's view lags. If executor-state knows of free
// capacity that this core does not see yet, the first of all pending reservations gets it.
func TestPrecedenceHoldsWhileTheViewLags(t *testing.T) {
	w := watched(t, Config{})
	first, second := int64(1), int64(2)
	ask := func(job, sku string, order *int64) {
		w.input(model.Upsert{Key: model.Key{Job: job, Stage: "s", Name: "main"}, Count: 1, Spec: model.Spec{
			Priority: model.Priority{Order: order}, Constraints: constraint.Constraints{SKU: sku},
		}})
	}
	ask("x", "sim", &first)
	w.step(scheduler.CycleDone{Cycle: 1, Outcomes: []model.Outcome{{UID: w.core.byKey[model.Key{Job: "x", Stage: "s",
		Name: "main"}][0].uid, Result: model.NoFit}}})
	w.now = w.now.Add(w.core.config.Scheduling.MinDelay)
	ask("y", "", &second)
	var tried []string
	for _, e := range w.cycle.Candidates {
		tried = append(tried, e.Key.Job)
	}
	if got := strings.Join(tried, " "); got != "x y" {
		t.Errorf("the cycle has %q, want x before y", got)
	}
}
