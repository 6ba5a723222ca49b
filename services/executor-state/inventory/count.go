package inventory

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/usage"
)

// counts counts what happened under this leader. An effect is counted once it is durable.
type counts struct {
	attempts       map[Attempt]uint64
	leaseDurations model.Histogram
	losses         uint64
	// answers has the time from each question to the answer, by cell.
	answers map[string]*model.Histogram
}

// maxAnswering is the maximum number of cells whose answers are measured.
const maxAnswering = 1000

func (n *counts) answered(cell string, after time.Duration) {
	h := n.answers[cell]
	switch {
	case h != nil:
	case len(n.answers) >= maxAnswering:
		return
	default:
		if n.answers == nil {
			n.answers = map[string]*model.Histogram{}
		}
		h = &model.Histogram{}
		n.answers[cell] = h
	}
	h.Observe(after)
}

// Attempt is the outcome of an attempt to grant a lease.
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

// durable counts a durable change. A lease ends with the deletion of its last chunk.
func (n *counts) durable(ch change, now time.Time) {
	switch ch.ref.Kind {
	case model.KindLeaseChunk:
		if ch.endsLease {
			n.leaseDurations.Observe(now.Sub(chunkOf(ch.prev).GrantedAt))
		}
	case model.KindExecutor:
		if ch.next != nil && ch.next.record.(*model.Executor).Lost &&
			(ch.prev == nil || !ch.prev.record.(*model.Executor).Lost) {
			n.losses++
		}
	}
}

// SKUState is a SKU and a state in which executors of the SKU are.
type SKUState struct {
	SKU   string
	State model.ExecutorState
}

// Metrics holds the values of executor-state's metrics.
type Metrics struct {
	// Executors counts the executors by state and by SKU, spelled as the executors spell it.
	Executors map[SKUState]int
	// Disabled counts the executors that a request takes out of allocation.
	Disabled int
	Leases   int
	// Used and Capacity are sums over all executors that are not LOST, by resource.
	Used, Capacity map[string]float64
	// All of the following are counted under this leader. Attempts counts the attempts to
	// grant a lease. LeaseDurations are the durations of ended leases. Losses counts the executors that
	// were declared LOST.
	Attempts       map[Attempt]uint64
	LeaseDurations model.Histogram
	Losses         uint64
	// Volumes counts the volumes by state, and Held has what they hold, by resource.
	Volumes map[model.VolumeState]int
	Held    map[string]float64
	// Offers counts the answers of cells in offers, by state. Answers has the time from each
	// question to the answer, by cell, counted under this leader.
	Offers  map[model.CellState]int
	Answers map[string]model.Histogram
	// Findings has the current findings.
	Findings []Finding
	// Usage is the usage of all SKUs; nil until the registry is ready.
	Usage *usage.Usage
}

// Metrics returns the metrics at a time. Its cost is linear in the number of executors, plus
// the cost of Usage.
func (c *Core) Metrics(now time.Time) Metrics {
	f := Metrics{
		Executors: map[SKUState]int{}, Leases: len(c.leases),
		Used: map[string]float64{}, Capacity: c.index.Capacity(), Disabled: c.usage.Disabled(),
		Attempts: map[Attempt]uint64{}, LeaseDurations: c.counts.leaseDurations, Losses: c.counts.losses,
		Findings: c.Findings(now), Offers: map[model.CellState]int{}, Answers: map[string]model.Histogram{},
	}
	f.Volumes, f.Held = c.volumeStats()
	for _, offer := range c.offers.byUID {
		for _, cell := range offer.Cells {
			f.Offers[cell.State]++
		}
	}
	for id, h := range c.counts.answers {
		f.Answers[id] = *h
	}
	if u, err := c.Usage(now, ""); err == nil {
		f.Usage = &u
	}
	for k := range c.index.Classes(nil) {
		away := 0
		for why, state := range ineligibleStates {
			f.add(k, state, k.Count(why))
			away += k.Count(why)
		}
		f.add(k, model.ExecutorReady, len(k.Executors())-away)
	}
	for h := range c.byID.All() {
		if h.state == model.ExecutorLost {
			continue
		}
		for name, amount := range h.allocation.Used {
			f.Used[name] += float64(amount)
		}
	}
	for attempt, n := range c.counts.attempts {
		f.Attempts[attempt] = n
	}
	return f
}

// ineligibleStates are the states of executors that are not READY.
var ineligibleStates = map[match.Eligibility]model.ExecutorState{
	match.Registered: model.ExecutorRegistered, match.Unreachable: model.ExecutorUnreachable,
	match.Lost: model.ExecutorLost,
}

func (f *Metrics) add(k *match.Class, state model.ExecutorState, n int) {
	if n > 0 {
		f.Executors[SKUState{k.Host().SKU, state}] += n
	}
}
