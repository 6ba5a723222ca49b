package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	_ "berth.dev/testkit/fixedseed"
)

// The record of a requeue keeps the first and the latest numbers of its worker in a bounded
// list, and never a number that the worker did not have.
func TestEarlierNumbersAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var had []int32
		var kept []model.NumberRange
		number := int32(0)
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			number += rapid.Int32Range(1, 3).Draw(t, "step")
			had, kept = append(had, number), withNumber(kept, number)
		}
		var listed []int32
		for _, n := range kept {
			for number := n.First; number <= n.Last; number++ {
				listed = append(listed, number)
			}
		}
		latest := listed[len(listed)-1]
		switch {
		case len(kept) > model.MaxEarlier:
			t.Fatalf("%v has %d ranges", kept, len(kept))
		case listed[0] != had[0] || latest != number:
			t.Fatalf("%v does not begin with %d and end with %d", kept, had[0], number)
		case len(kept) < model.MaxEarlier && !slices.Equal(listed, had):
			t.Fatalf("%v, want the numbers %v", kept, had)
		}
		for _, number := range listed {
			if !slices.Contains(had, number) {
				t.Fatalf("%v has the number %d, which is not in %v", kept, number, had)
			}
		}
	})
}

// Records that an older version of Berth wrote keep their meaning.
func TestRequeuesOfOlderVersions(t *testing.T) {
	key := ask("j", 2).Key
	// An older version numbered the rounds of a worker without gaps.
	requeue := model.Reservation{Key: key, UID: "b-1", State: model.Queued, Origin: model.OriginRequeue, Parent: "a-1",
		Round: 3, Workers: model.WorkerSet{{Number: 5}}}
	for name, tt := range map[string]struct {
		records  bool                // whether the record of the batch names the workers that were queued again
		used     int32               // the highest number of index 0
		others   []model.Reservation // other versions of the batch
		puts     int                 // number of records that the return of worker 0.1 changes
		requeued bool
	}{
		"not queued again yet":        {used: 1, puts: 3, requeued: true},
		"queued again":                {used: 2},
		"another name uses the index": {records: true, used: 2, puts: 3, requeued: true},
		"queued again by an older version in between": {records: true, used: 5, others: []model.Reservation{requeue},
			puts: 1, requeued: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := started()
			w.input(ask("j", 2))
			w.bring("a-1", isActive)
			w.now = w.now.Add(noteWithin)
			w.step(nil)
			batch := *w.core.versions["a-1"].r
			batch.RecordsRequeues = tt.records
			stage := &model.Stage{Job: key.Job, Stage: key.Stage,
				Numbers: model.WorkerSet{{Number: tt.used}, {First: 1, Last: 1, Number: 1}}}
			chunk := &model.TaskChunk{UID: "a-1", Workers: []model.TaskWorker{
				{ID: model.WorkerID{Number: 1}, State: model.WorkerFailed, Requeue: true},
				{ID: model.WorkerID{Index: 1, Number: 1}, State: model.WorkerRunning},
			}}
			changes := []model.Changed{{Ref: batch.Ref(), Record: &batch}, {Ref: stage.Ref(), Record: stage},
				{Ref: chunk.Ref(), Record: chunk}}
			for _, r := range tt.others {
				changes = append(changes, model.Changed{Ref: r.Ref(), Record: &r})
			}
			puts := 0
			for _, effect := range actionsOf[model.Effect](w.foreign(changes...)) {
				puts += len(effect.Puts)
			}
			requeued := w.core.versions["a-1"].r.Requeued.Has(model.WorkerID{Number: 1})
			if puts != tt.puts || requeued != tt.requeued {
				t.Errorf("%d records changed, recorded as queued again: %v", puts, requeued)
			}
			for _, r := range tt.others {
				for _, number := range []int32{1, 2} {
					w.input(request.CancelWorkers{Job: key.Job, Stage: key.Stage, Workers: []model.WorkerID{{Number: number}}})
					if cancelled := !w.core.versions[r.UID].alive(); cancelled != (number == 2) {
						t.Errorf("number 5 of round 3 is cancelled by number %d: %v", number, cancelled)
					}
				}
			}
		})
	}
}
