package sim

import (
	"context"
	"math"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/executor-state/inventory"
)

// rogueClient sends the leaders requests that no registry and no agent sends: terms, numbers,
// revisions and sequences that do not exist. It has random numbers of its own and calls a
// leader only if that has another request, so that a world in which it is rejected runs as
// without it.
//
// A rejection can still teach a leader what its view does not show yet. A deposed leader confirms
// its term before it answers, and so ends it earlier. A request with the term of a new registry
// makes that term known. Therefore only a client that also sends valid requests calls a leader
// that can learn something from the call.
type rogueClient struct {
	draws func(n int) int
	// sendsValid is set if it also sends valid requests of the current term.
	sendsValid bool
	// sent counts its requests, refused those that were rejected.
	sent, refused int
}

// rogueRequest returns a request of the rogue client to the leader of a service, mostly nil.
func (w *World) rogueRequest(service string) any {
	s := &w.rogueClient
	if w.directed || w.faultsStopped || s.draws == nil || s.draws(16) > 0 {
		return nil
	}
	revision := w.store.Revision()
	kv, _, _ := w.store.Get(context.Background(), w.space.Key(model.LeaderRef(model.ServiceRegistry)))
	high := []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, revision + 1_000_000}[s.draws(4)]
	key := model.Key{Job: "job-0", Stage: "stage-0", Name: "main"}
	switch service {
	case model.ServiceExecutorState:
		entry := model.Candidate{Key: key, UID: "rogue", Group: "g", Mod: high, Epoch: high,
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
			if s.sendsValid {
				entry.Mod, entry.Epoch = revision, revision
				return model.Cycle{Term: kv.Create, Number: int64(1) << s.draws(63), Cut: revision,
					Candidates: []model.Candidate{entry}}
			}
		case 5:
			answer := inventory.OfferAnswer{UID: "rogue", Number: high, CellOffer: model.CellOffer{State: model.CellAccepted}}
			return inventory.AnswerOffers{Executor: "cell-0", Incarnation: high, Nonce: "rogue",
				Answers: []inventory.OfferAnswer{answer}, Freed: true}
		}
	case model.ServiceAssigner:
		task := model.DispatchTask{Key: key, UID: "rogue", Mod: high, Lease: high}
		switch s.draws(4) {
		case 0:
			return model.Dispatch{Term: high}
		case 1:
			return model.Dispatch{Term: kv.Create, Tasks: []model.DispatchTask{task}}
		case 2:
			return dispatch.Report{Executor: "rogue", Incarnation: high, Sequence: high, Complete: true}
		}
	}
	return nil
}

// finalCalls lets a rogue client with valid requests use up cycle numbers after the faults,
// when the leader does not change any more: leasing must continue.
func (w *World) finalCalls() {
	if !w.rogueClient.sendsValid {
		return
	}
	kv, _, _ := w.store.Get(context.Background(), w.space.Key(model.LeaderRef(model.ServiceRegistry)))
	for _, r := range w.replicas[model.ServiceExecutorState] {
		if r.leads() {
			r.ask(model.Cycle{Term: kv.Create, Number: 1 << 61, Cut: w.store.Revision()}, time.Time{}, func(any, error) {})
		}
	}
}

// sendWithRogue sends the node a request of the rogue client together with another request.
func (n *node[C]) sendWithRogue() {
	w := n.w
	request := w.rogueRequest(n.service)
	if request == nil || !w.rogueClient.sendsValid && !n.knowsLeaders() {
		return
	}
	w.rogueClient.sent++
	n.ask(request, time.Time{}, func(_ any, err error) {
		if err != nil {
			w.rogueClient.refused++
		}
		if fault.Is(err, fault.ReasonInternal) {
			w.fail("%T of a rogue client: %v", request, err)
		}
	})
}

// knowsLeaders reports whether the node's term lasts and its view shows the registry's leader.
func (n *node[C]) knowsLeaders() bool {
	return n.w.leads(n.key(), n.term) && n.w.leaderTerm(model.ServiceRegistry) <= n.driver.Revision()
}
