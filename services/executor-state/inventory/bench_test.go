package inventory

import (
	"fmt"
	"testing"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// fleet fills a core with executors of 10 SKUs in 50 racks, some of them
// partly used, without going through registrations.
func fleet(n int) *Core {
	c := New(DefaultConfig())
	rev := int64(10)
	tell := func(record model.Record) {
		rev++
		c.Step(start, model.Changed{Ref: record.Ref(), Record: record, Create: rev, Mod: rev})
	}
	for i := range n {
		id := fmt.Sprintf("host-%06d", i)
		capacity := resource.Vector{"cpu": 8000 << (i % 3), "memory": 64 << 30, "slots": 8}
		if i%10 == 0 {
			capacity["gpu"] = 8
		}
		tell(&model.Executor{
			ID: id, Address: id + ":7200", SKU: fmt.Sprintf("sku-%d", i%10), Resources: capacity,
			Attributes: map[string]string{"rack": fmt.Sprint(i / 10 % 50), "region": "here"}, Generation: int64(i % 4),
			Incarnation: 1, Ordinal: uint32(i + 1),
		})
		tell(&model.Live{ID: id, Incarnation: 1})
		if i%7 == 0 {
			tell(&model.Reservation{Key: keyOf("old-" + id), UID: "old-" + id, State: model.Active})
			tell(&model.LeaseChunk{
				UID: "old-" + id, Chunks: 1, Each: resource.Vector{"cpu": 500, "memory": 1 << 30, "slots": int64(1 + i%3)},
				Workers: []model.Placement{{Seat: model.Seat{Number: 1}, Ordinal: uint32(i + 1)}},
			})
		}
	}
	c.Step(start, model.Elected{Term: rev + 1, Revision: rev})
	c.todo = todo{}
	return c
}

func benchmarkPass(b *testing.B, k constraint.Constraints, workers int32) {
	c := fleet(100_000)
	k.Resources = k.Resources.WithSlots()
	entry := Entry{
		Key: keyOf("bench"), UID: "bench", Group: "g", Mod: c.revision + 1, Constraints: k,
		Seats: model.Seats{{First: 0, Last: workers - 1, Number: 1}},
	}
	b.ReportAllocs()
	for b.Loop() {
		actions := c.Step(start, model.Input{Token: 1, Request: Pass{Term: 1, Pass: 1, Entries: []Entry{entry}}})
		if len(actions) != 1 {
			b.Fatalf("not granted: %+v", actions)
		}
		b.StopTimer()
		c.Step(start, model.Abandoned{})
		b.StartTimer()
	}
}

// The goal is 1 ms for 100 workers among 100,000 executors.
func BenchmarkPass(b *testing.B) {
	each := resource.Vector{"cpu": 4000, "memory": 8 << 30}
	for _, test := range []struct {
		name    string
		k       constraint.Constraints
		workers int32
	}{
		{"Any100", constraint.Constraints{Resources: each}, 100},
		{"SKU100", constraint.Constraints{Resources: each, SKU: "sku-3"}, 100},
		{"OneEach100", constraint.Constraints{Resources: each, Spread: constraint.Spread{By: constraint.ByExecutor, Max: 1}}, 100},
		{"Racks100", constraint.Constraints{Resources: each, Spread: constraint.Spread{By: "rack", Max: 2}}, 100},
		{"Pack100", constraint.Constraints{Resources: each, Pack: true}, 100},
		{"Any10000", constraint.Constraints{Resources: each}, 10_000},
	} {
		b.Run(test.name, func(b *testing.B) { benchmarkPass(b, test.k, test.workers) })
	}
}

// The matcher alone, for any executor and for one kind.
func BenchmarkChoose(b *testing.B) {
	c := fleet(100_000)
	each := resource.Vector{"cpu": 4000, "memory": 8 << 30, "slots": 1}
	for name, k := range map[string]constraint.Constraints{
		"Any": {Resources: each}, "SKU": {Resources: each, SKU: "sku-3"}, "Pack": {Resources: each, Pack: true},
		"Racks": {Resources: each, Spread: constraint.Spread{By: "rack", Max: 2}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, fitting := c.choose(k, 100); fitting < 100 {
					b.Fatalf("%d fit", fitting)
				}
			}
		})
	}
}

// A refusal looks at everything that could have fitted.
func BenchmarkRefusal(b *testing.B) {
	c := fleet(100_000)
	k := constraint.Constraints{Resources: resource.Vector{"gpu": 9, "slots": 1}}
	b.ReportAllocs()
	for b.Loop() {
		if _, fitting := c.choose(k, 100); fitting > 0 {
			b.Fatal("nothing has nine")
		}
	}
}

func BenchmarkExplain(b *testing.B) {
	for _, executors := range []int{10_000, 100_000} {
		c := fleet(executors)
		b.Run(fmt.Sprint(executors), func(b *testing.B) {
			k := constraint.Constraints{Resources: resource.Vector{"cpu": 8000, "gpu": 8, "slots": 8}, Attributes: map[string]string{"rack": "3"}}
			b.ReportAllocs()
			for b.Loop() {
				if e := c.Explain(k, 1000); e.Fitting == 1000 || len(e.Checks) == 0 {
					b.Fatalf("%+v", e)
				}
			}
		})
	}
}

// The goal is well under 20 ms for 100,000 waiting reservations in 1,000 groups.
func BenchmarkUsage(b *testing.B) {
	c := fleet(10_000)
	tell := func(record model.Record) {
		c.Step(start, model.Changed{Ref: record.Ref(), Record: record, Create: c.revision + 1, Mod: c.revision + 1})
	}
	tell(&model.Ready{Since: start})
	for i := range 100_000 {
		uid := fmt.Sprintf("w%d", i)
		k := constraint.Constraints{Resources: resource.Vector{"cpu": int64(100 + i%500), "slots": 1}}
		if i%2 == 0 {
			k.SKU = fmt.Sprintf("SKU-%d", i%10)
		}
		tell(&model.Reservation{
			Key: keyOf(uid), UID: uid, State: model.Queued, Spec: model.Spec{Constraints: k},
			Seats: model.Seats{{First: 0, Last: int32(i % 100), Number: 1}},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		if u, err := c.Usage(""); err != nil || len(u.SKUs) != 10 {
			b.Fatal(u, err)
		}
	}
}

func BenchmarkIdleExecutors(b *testing.B) {
	c := fleet(10_000)
	for b.Loop() {
		if len(c.IdleExecutors("sku-3", 100)) != 100 {
			b.Fatal("not enough")
		}
	}
}
