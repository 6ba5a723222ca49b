//go:build linux

package inventory

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// BenchmarkDisable measures the start and the end of a request by attributes. No other
// event is handled during such a step. In a fleet of 100,000 different executors, the
// longest step takes some 50 ms.
func BenchmarkDisable(b *testing.B) {
	for _, of := range []look{alike, ownEverything} {
		for _, r := range []struct{ name, attribute, value string }{
			{"All", "region", "here"}, {"Rack", "rack", "7"}, {"None", "zone", "a"},
		} {
			c := fleetOf100000(of)
			requests := 0
			b.Run(fmt.Sprint(of, "/", r.name), func(b *testing.B) {
				var longest [2]time.Duration
				var steps [2]int
				coreTime(b, func() {
					requests++
					id := fmt.Sprintf("%s-%d", r.name, requests)
					for i, request := range []any{
						policy.Disable{RequestID: id, Selector: policy.Selector{Attributes: map[string]string{r.attribute: r.value}}},
						policy.Enable{RequestID: id + "-undone", DisableRequestID: id},
					} {
						var event model.Event = model.Input{Token: 1, Request: request}
						for {
							before := threadTime()
							c.Step(start, event)
							longest[i] = max(longest[i], threadTime()-before)
							steps[i]++
							c.Step(start, model.Committed{Effects: len(c.journal), Revision: c.revision})
							if event = nil; c.NextDeadline().IsZero() || c.NextDeadline().After(start) {
								break
							}
						}
					}
				})
				for i, what := range []string{"disable", "enable"} {
					b.ReportMetric(float64(longest[i].Microseconds())/1000, "ms/longest-"+what)
					b.ReportMetric(float64(steps[i])/float64(b.N), "steps/"+what)
				}
			})
		}
	}
}
