//go:build linux

package inventory

import (
	"testing"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// BenchmarkStep places a batch of 100 workers. `make bench` compares its allocations with a
// baseline.
func BenchmarkStep(b *testing.B) {
	c := fleet(10_000, alike)
	needs := resource.Vector{"cpu": 4000, "memory": 8 << 30, "slots": 1}
	for _, r := range []struct {
		name string
		k    constraint.Constraints
	}{
		{"Fit", constraint.Constraints{Resources: needs}},
		{"FitSKU", constraint.Constraints{Resources: needs, SKU: "sku-3"}},
		{"FitSpread", constraint.Constraints{Resources: needs, Spread: constraint.Spread{By: constraint.ByExecutor, Max: 1}}},
		{"Refuse", constraint.Constraints{Resources: resource.Vector{"gpu": 9, "slots": 1}}},
	} {
		entry := model.Candidate{
			Key: keyOf("bench"), UID: "bench", Group: "g", Mod: c.revision + 1, Constraints: r.k,
			Workers: model.WorkerSet{{First: 0, Last: 99, Number: 1}},
		}
		c.index.Query(r.k) // the first query of a request is not part of the measurement
		b.Run(r.name, func(b *testing.B) {
			coreTime(b, func() {
				c.Step(start, model.Input{Token: 1, Request: model.Cycle{Term: 1, Number: 1, Candidates: []model.Candidate{entry}}})
				c.Step(start, model.Abandoned{})
			})
		})
	}
}
