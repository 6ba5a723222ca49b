package inventory

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// counts are what this leader has seen happen. They begin at nothing with each
// leader; what an effect brings about counts once it is durable.
type counts struct {
	attempts       map[Attempt]uint64
	leaseDurations model.Histogram
	losses         uint64
}

// Attempt is how a try to lease came out.
type Attempt struct {
	Result model.Result
	Reason fault.Reason
}

func (n *counts) attempt(o model.Outcome) {
	if n.attempts == nil {
		n.attempts = map[Attempt]uint64{}
	}
	n.attempts[Attempt{o.Result, o.Reason}]++
}

// durable counts what a change of a record has brought about. A lease has ended
// with the last of its chunks.
func (n *counts) durable(ch change, now time.Time) {
	switch ch.ref.Kind {
	case model.KindLeaseChunk:
		if ch.endsLease {
			n.leaseDurations.Observe(now.Sub(chunkOf(ch.prev).GrantedAt))
		}
	case model.KindExecutor:
		if ch.next != nil && ch.next.record.(*model.Executor).Lost && (ch.prev == nil || !ch.prev.record.(*model.Executor).Lost) {
			n.losses++
		}
	}
}

// SKUState is executors of a SKU in a state.
type SKUState struct {
	SKU   string
	State model.ExecutorState
}

// Figures are what the metrics of executor-state show.
type Figures struct {
	// Executors counts by SKU, as executors spell it, and state.
	Executors map[SKUState]int
	// Disabled counts executors that a request takes out of allocation.
	Disabled int
	Leases   int
	// Used and Capacity are sums over all executors that are not LOST, by
	// resource.
	Used, Capacity map[string]float64
	// Attempts counts the tries to lease, Held how long ended leases lasted,
	// Losses the executors given up, all by this leader.
	Attempts map[Attempt]uint64
	Held     model.Histogram
	Losses   uint64
	// Findings counts by kind.
	Findings map[string]int
}

// Figures answers the figures at a time. It costs a look at every executor.
func (c *Core) Figures(now time.Time) Figures {
	f := Figures{
		Executors: map[SKUState]int{}, Leases: len(c.leases),
		Used: map[string]float64{}, Capacity: c.index.Capacity(), Disabled: c.usage.Disabled(),
		Attempts: map[Attempt]uint64{}, Held: c.counts.leaseDurations, Losses: c.counts.losses,
		Findings: map[string]int{},
	}
	for k := range c.index.Classes(nil) {
		away := 0
		for why, state := range standingStates {
			f.add(k, state, k.Count(why))
			away += k.Count(why)
		}
		f.add(k, model.ExecutorReady, len(k.Executors())-away)
	}
	for h := range c.byID.All() {
		if h.state == model.ExecutorLost {
			continue
		}
		for name, amount := range h.hold.Used {
			f.Used[name] += float64(amount)
		}
	}
	for attempt, n := range c.counts.attempts {
		f.Attempts[attempt] = n
	}
	for _, finding := range c.Findings(now) {
		f.Findings[finding.Kind]++
	}
	return f
}

// standingStates are the states of executors that are not READY.
var standingStates = map[match.Standing]model.ExecutorState{
	match.Registered: model.ExecutorRegistered, match.Unreachable: model.ExecutorUnreachable, match.Lost: model.ExecutorLost,
}

func (f *Figures) add(k *match.Class, state model.ExecutorState, n int) {
	if n > 0 {
		f.Executors[SKUState{k.Host().SKU, state}] += n
	}
}
