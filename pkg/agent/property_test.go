package agent

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
)

// The test checks promises for every order of events. A (worker, epoch) is started at most
// once, and never after a confirmed stop. A worker name has at most one live epoch, and its
// epochs never decrease.
func TestLedgerPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger("host", "", time.Hour)
		l.begin(1, 1)
		now := time.Unix(0, 0)
		over := map[identity]bool{}
		highest := map[model.Worker]int64{}
		live := map[model.Worker]int64{}
		ids := rapid.Custom(func(t *rapid.T) identity {
			workerID := model.WorkerID{Index: rapid.Int32Range(0, 1).Draw(t, "index"), Number: 1}
			return identity{model.Worker{Job: "j", Stage: "s", ID: workerID}, rapid.Int64Range(1, 4).Draw(t, "epoch")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				_, fresh, _, err := l.submit(1, 1, id, "", now)
				if !fresh {
					return
				}
				switch {
				case err != nil:
					t.Fatalf("%v starts with %v", id, err)
				case over[id]:
					t.Fatalf("%v starts after its end", id)
				case live[id.Worker] != 0:
					t.Fatalf("%v starts in addition to epoch %d", id, live[id.Worker])
				case id.Epoch < highest[id.Worker]:
					t.Fatalf("%v starts after epoch %d", id, highest[id.Worker])
				}
				if rapid.Bool().Draw(t, "fails") {
					l.startFailed(id)
					return
				}
				l.started(id, model.ReadyStarted, false, now)
				live[id.Worker], highest[id.Worker] = id.Epoch, id.Epoch
			},
			"stop": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				e, err := l.stop(1, 1, id)
				if err != nil {
					t.Fatal(err)
				}
				if e == nil {
					l.bury(tombstone{identity: id, At: now})
				} else if !e.state.Terminal() {
					l.evicting(id, now)
					return
				}
				if live[id.Worker] == id.Epoch {
					t.Fatalf("the stop of %v was confirmed while it was running", id)
				}
				over[id] = true
			},
			"end": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if live[id.Worker] != id.Epoch {
					return
				}
				if !l.ended(id, exitOf(0, rapid.Bool().Draw(t, "stopped")), now) {
					t.Fatalf("the end of %v is ignored", id)
				}
				over[id] = true
				delete(live, id.Worker)
			},
			"answer": func(t *rapid.T) {
				e := entry{identity: ids.Draw(t, "id")}
				r := l.report(complete)
				l.answered(&controlv1.ExecutorReportAnswer{Sequence: r.Sequence, Ended: []*controlv1.WorkerReport{e.wire()}})
			},
			"": func(t *rapid.T) {
				for worker, epoch := range live {
					if e := l.entries[identity{worker, epoch}]; e == nil || e.state.Terminal() {
						t.Fatalf("%v@%d runs and is not reported", worker, epoch)
					}
				}
			},
		})
	})
}
