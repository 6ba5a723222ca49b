package sim

import (
	"context"
	"math"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
)

// stranger sends requests to the leaders that no registry and no agent sends: requests
// with terms, numbers, revisions and sequences that do not exist. It has its own random
// numbers, and it calls a leader only if the leader has another request. So a world that
// rejects the stranger's requests runs as if there were no stranger.
type stranger struct {
	draws func(n int) int
	// bold is set if the stranger also sends valid requests of the current term.
	bold bool
	// sent counts the stranger's requests. refused counts the requests that were rejected.
	sent, refused int
}

// strange returns a request of the stranger to the leader of a service. It usually
// returns nil, which means no request.
func (w *World) strange(service string) any {
	s := &w.stranger
	if w.directed || w.calm || s.draws == nil || s.draws(16) > 0 {
		return nil
	}
	revision := w.store.Revision()
	kv, _, _ := w.store.Get(context.Background(), w.space.Key(model.LeaderRef(model.ServiceRegistry)))
	high := []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, revision + 1_000_000}[s.draws(4)]
	key := model.Key{Job: "job-0", Stage: "stage-0", Name: "main"}
	switch service {
	case model.ServiceExecutorState:
		entry := model.Candidate{Key: key, UID: "stranger", Group: "g", Mod: high, Epoch: high,
			Workers: model.WorkerSet{{First: 0, Last: math.MaxInt32, Number: 1}}}
		switch s.draws(6) {
		case 0:
			return model.Cycle{Term: high, Number: 1, Cut: revision}
		case 1:
			return model.Cycle{Term: kv.Create, Number: 1, Cut: high}
		case 2:
			return model.Cycle{Term: kv.Create, Number: math.MaxInt64 - int64(s.draws(3)), Cut: revision}
		case 3:
			return model.Cycle{Term: kv.Create, Number: 1, Cut: revision, Candidates: []model.Candidate{entry}}
		case 4:
			if s.bold {
				entry.Mod, entry.Epoch = revision, revision
				return model.Cycle{Term: kv.Create, Number: int64(1) << s.draws(63), Cut: revision,
					Candidates: []model.Candidate{entry}}
			}
		}
	case model.ServiceAssigner:
		task := model.DispatchTask{Key: key, UID: "stranger", Mod: high, Lease: high}
		switch s.draws(4) {
		case 0:
			return model.Dispatch{Term: high}
		case 1:
			return model.Dispatch{Term: kv.Create, Tasks: []model.DispatchTask{task}}
		case 2:
			return dispatch.Report{Executor: "stranger", Incarnation: high, Sequence: high, Complete: true}
		}
	}
	return nil
}

// lastWord makes a bold stranger use up cycle numbers after the faults have stopped, when
// leaders no longer change. Berth must still grant leases after that.
func (w *World) lastWord() {
	if !w.stranger.bold {
		return
	}
	kv, _, _ := w.store.Get(context.Background(), w.space.Key(model.LeaderRef(model.ServiceRegistry)))
	for _, r := range w.replicas[model.ServiceExecutorState] {
		if r.leads() {
			r.ask(model.Cycle{Term: kv.Create, Number: 1 << 61, Cut: w.store.Revision()}, time.Time{}, func(any, error) {})
		}
	}
}

// meet sends a request of the stranger to a leader together with another request.
func (w *World) meet(service string, ask func(request any, until time.Time, answer func(any, error))) {
	request := w.strange(service)
	if request == nil {
		return
	}
	w.stranger.sent++
	ask(request, time.Time{}, func(_ any, err error) {
		if err != nil {
			w.stranger.refused++
		}
		if fault.Is(err, fault.ReasonInternal) {
			w.fail("%T of a stranger: %v", request, err)
		}
	})
}
