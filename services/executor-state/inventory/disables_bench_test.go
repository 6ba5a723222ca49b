package inventory

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// BenchmarkOverlappingDisables starts requests that each apply to every executor. It ends
// them in one step, or in as few steps as the core needs. The time of each step matters,
// because no other event is handled meanwhile: a step of ten seconds ends the term.
func BenchmarkOverlappingDisables(b *testing.B) {
	const requests = 50
	for _, executors := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(executors), func(b *testing.B) {
			c := fleet(executors, alike)
			rev := c.revision + 1_000_000
			longest := time.Duration(0)
			step := func(now time.Time, event model.Event) {
				began := time.Now()
				c.Step(now, event)
				longest = max(longest, time.Since(began))
			}
			now := start
			for b.Loop() {
				for i := range requests {
					step(now, model.Input{Token: 1, Request: policy.Disable{
						RequestID: fmt.Sprintf("d%d-%d", rev, i), ExpireAt: now.Add(time.Minute),
						Selector: policy.Selector{Attributes: map[string]string{"region": "here"}},
					}})
				}
				rev++
				c.Step(now, model.Committed{Effects: len(c.journal), Revision: rev})
				now = now.Add(time.Hour)
				for c.NextDeadline().Compare(now) <= 0 && !c.NextDeadline().IsZero() {
					step(now, nil)
					rev++
					c.Step(now, model.Committed{Effects: len(c.journal), Revision: rev})
				}
			}
			b.ReportMetric(float64(longest.Milliseconds()), "ms/longest-step")
		})
	}
}
