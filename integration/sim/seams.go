package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// seams draws what half of the worlds do in addition, so that the promises of a reservation meet:
// drains, placements that hold for a gang as a whole, a limit on the wait, and a request that is
// repeated with another number of workers while its gang runs. A part of these worlds has every
// other capability too.
type seams struct {
	enabled, everything bool
	rng                 *rand.Rand
	drains              int
	// last has the last acknowledged request of each key.
	last map[model.Key]model.Upsert
}

func newSeams(seed uint64) seams {
	s := seams{rng: rand.New(rand.NewPCG(seed, 0x7365616d73)), last: map[model.Key]model.Upsert{}}
	s.enabled = s.rng.IntN(2) == 0
	s.everything = s.enabled && s.rng.IntN(4) == 0
	return s
}

// draw draws parts of a request. The registry rejects placements together with cells.
func (s *seams) draw(spec *model.Spec) {
	if !s.enabled {
		return
	}
	c := &spec.Constraints
	if !c.Cells {
		switch s.rng.IntN(6) {
		case 0, 1:
			c.Spread = constraint.Spread{By: constraint.ByExecutor, Max: int32(1 + s.rng.IntN(2))}
		case 2:
			c.Spread = constraint.Spread{By: "zone", Max: int32(1 + s.rng.IntN(3))}
		case 3:
			c.SameShape = true
		}
		c.Pack = s.rng.IntN(8) == 0
	}
	if s.rng.IntN(5) == 0 {
		spec.QueueTimeout = time.Duration(3+s.rng.IntN(40)) * time.Second
	}
	if s.rng.IntN(2) == 0 {
		spec.OnWorkerLoss = model.OnLossReplace
	}
	if s.rng.IntN(6) == 0 {
		spec.Start = model.StartTogether
	}
}

// again returns the last request of a key with another number of workers, if the clients repeat
// it. The times of the request are over by then.
func (s *seams) again(key model.Key) (model.Upsert, bool) {
	last, known := s.last[key]
	if !s.enabled || !known || s.rng.IntN(3) > 0 {
		return model.Upsert{}, false
	}
	last.Count = int32(1 + s.rng.IntN(6))
	last.Spec.TargetSize, last.Spec.NotBefore, last.Spec.ExpireAt = 0, time.Time{}, time.Time{}
	return last, true
}

// drain drains a host for a while, as an operator does, and reports whether it does. The host may
// be drained already.
func (c *clients) drain() bool {
	s := &c.w.seams
	if !s.enabled || s.rng.IntN(10) > 0 {
		return false
	}
	s.drains++
	drain := policy.Drain{ID: c.w.agents[s.rng.IntN(len(c.w.agents))].id, RequestID: fmt.Sprintf("drain-%d", s.drains),
		ExpireAt: c.w.now.Add(time.Duration(1+s.rng.IntN(20)) * time.Second)}
	if s.drains%2 == 0 {
		drain.Grace = new(time.Duration(s.drains%3) * time.Second)
	}
	c.w.logf("client: drains %s for %v", drain.ID, drain.ExpireAt.Sub(c.w.now))
	always := func() bool { return true }
	c.w.call("drain of "+drain.ID, model.ServiceExecutorState, always, drain, func(_ any, err error) {
		if f := fault.Of(err); err != nil && f.Kind != fault.NotFound && f.Kind != fault.Invalid {
			c.w.fail("drain of %s: %v", drain.ID, err)
		}
	})
	return true
}
