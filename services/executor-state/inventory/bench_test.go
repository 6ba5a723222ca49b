//go:build linux

package inventory

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// look selects how the executors of a fleet differ.
type look uint8

const (
	// alike: the executors have 10 SKUs in 50 racks.
	alike look = iota
	// ownAttributes: like alike, but each executor also has an attribute of its own and shares
	// a host with seven others.
	ownAttributes
	// ownMemory: each executor has a slightly different amount of memory.
	ownMemory
	// ownResources: each executor has different amounts of CPU, memory and disk. An executor
	// with more of one resource has less of another.
	ownResources
	// ownEverything combines ownResources and ownAttributes.
	ownEverything
)

var looks = []look{alike, ownAttributes, ownMemory, ownResources, ownEverything}

var lookNames = []string{"Alike", "OwnAttributes", "OwnMemory", "OwnResources", "OwnEverything"}

func (l look) String() string { return lookNames[l] }

// fleet returns a core with n executors of 10 SKUs in 50 racks, some of them partly used.
// It writes their records directly, without registrations.
func fleet(n int, of look) *Core {
	c := New(DefaultConfig())
	rev := int64(10)
	apply := func(record model.Record) {
		rev++
		c.Step(start, model.Changed{Ref: record.Ref(), Record: record, Create: rev, Mod: rev})
	}
	apply(&model.Pool{Name: "left", Attributes: map[string]string{"rack": "1"}})
	apply(&model.Pool{Name: "right", Attributes: map[string]string{"rack": "2"}})
	for i := range n {
		id := fmt.Sprintf("host-%06d", i)
		capacity := resource.Vector{"cpu": 8000 << (i % 3), "memory": 64 << 30, "slots": 8}
		if i%10 == 0 {
			capacity["gpu"] = 8
		}
		attributes := map[string]string{"rack": fmt.Sprint(i / 10 % 50), "region": "here"}
		// A permutation makes neighbors differ.
		own := int64(i) * 48271 % 100_003
		if of == ownMemory {
			capacity["memory"] -= own << 12
		}
		if of >= ownResources {
			capacity["cpu"], capacity["memory"], capacity["disk"] = 8000+own, 64<<30-own<<18, 1<<40-own*own%100_003<<20
		}
		if of == ownAttributes || of == ownEverything {
			attributes["serial"], attributes["host"] = fmt.Sprintf("s-%06d", i), fmt.Sprintf("h-%06d", i/8)
		}
		apply(&model.Executor{
			ID: id, Address: id + ":7200", SKU: fmt.Sprintf("sku-%d", i%10), Resources: capacity,
			Attributes: attributes, Generation: int64(i % 4),
			Incarnation: 1, Ordinal: uint32(i + 1),
		})
		apply(&model.Live{ID: id, Incarnation: 1})
		if i%7 == 0 {
			apply(&model.Reservation{Key: keyOf("old-" + id), UID: "old-" + id, State: model.Active})
			apply(&model.LeaseChunk{
				UID: "old-" + id, Chunks: 1, Each: resource.Vector{"cpu": 500, "memory": 1 << 30, "slots": int64(1 + i%3)},
				Workers: []model.Placement{{Worker: model.WorkerID{Number: 1}, Ordinal: uint32(i + 1)}},
			})
		}
	}
	c.Step(start, model.Changed{Ref: model.LeaderRef(model.ServiceRegistry), Record: &model.Leader{}, Create: 1, Mod: 1})
	c.Step(start, model.Elected{Term: rev + 1, Revision: rev})
	c.todo = todo[duty]{}
	return c
}

// fleets caches the fleets, because building one takes longer than the measurement.
var fleets = map[look]*Core{}

func fleetOf100000(of look) *Core {
	if fleets[of] == nil {
		clear(fleets)
		runtime.GC()
		fleets[of] = fleet(100_000, of)
	}
	return fleets[of]
}

// coreTime measures the processor time that f takes. Other load on the machine does not
// change that time.
func coreTime(b *testing.B, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var spent time.Duration
	b.ReportAllocs()
	for b.Loop() {
		before := threadTime()
		f()
		spent += threadTime() - before
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "core-ns/op")
}

// threadTime returns the processor time that this thread has used.
func threadTime() time.Duration {
	const threadClock = 3
	var t syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// requests lists the constraints that the benchmarks request, with the number of workers.
var requests = []struct {
	name string
	// own requests need executors that have attributes of their own.
	own     bool
	workers int32
	k       constraint.Constraints
}{
	{"Any", false, 100, constraint.Constraints{}},
	{"SKU", false, 100, constraint.Constraints{SKU: "sku-3"}},
	{"Pool", false, 100, constraint.Constraints{Pools: []string{"left", "right"}}},
	{"Role", false, 100, constraint.Constraints{Role: "web"}},
	{"Rack", false, 100, constraint.Constraints{Attributes: map[string]string{"rack": "7"}}},
	{"SpreadByExecutor", false, 100, constraint.Constraints{Spread: constraint.Spread{By: constraint.ByExecutor, Max: 1}}},
	{"SpreadByRack", false, 100, constraint.Constraints{Spread: constraint.Spread{By: "rack", Max: 2}}},
	{"Pack", false, 100, constraint.Constraints{Pack: true}},
	{"Avoid", false, 100, constraint.Constraints{Avoid: []string{"host-000001", "host-000004", "host-000007",
		"host-000010"}}},
	{"Serial", true, 2, constraint.Constraints{Attributes: map[string]string{"serial": "s-000500"}}},
	{"SpreadByHost", true, 100, constraint.Constraints{Spread: constraint.Spread{By: "host", Max: 1}}},
	{"PackByHost", true, 100, constraint.Constraints{Spread: constraint.Spread{By: "host", Max: 3}, Pack: true}},
}

// BenchmarkCycle grants 100 workers among 100,000 executors, which are of few kinds or have
// an attribute of their own each. The goal is 1 ms of processor time to choose the
// executors, decide the lease and update all indexes.
func BenchmarkCycle(b *testing.B) {
	for _, of := range looks {
		c := fleetOf100000(of)
		for _, r := range requests {
			if r.own && of != ownAttributes && of != ownEverything {
				continue
			}
			r.k.Resources = resource.Vector{"cpu": 4000, "memory": 8 << 30, "slots": 1}
			entry := model.Candidate{
				Key: keyOf("bench"), UID: "bench", Group: "g", Mod: c.revision + 1, Constraints: r.k,
				Workers: model.WorkerSet{{First: 0, Last: r.workers - 1, Number: 1}},
			}
			c.index.Query(r.k) // the first query of a request is not part of the measurement
			b.Run(of.String()+"/"+r.name, func(b *testing.B) {
				coreTime(b, func() {
					actions := c.Step(start, model.Input{Token: 1, Request: model.Cycle{Term: 1, Number: 1,
						Candidates: []model.Candidate{entry}}})
					if len(actions) != 1 {
						b.Fatalf("not granted: %+v", actions)
					}
					c.Step(start, model.Abandoned{})
				})
			})
		}
	}
}

// BenchmarkChoose measures only the search for executors.
func BenchmarkChoose(b *testing.B) {
	for _, of := range looks {
		c := fleetOf100000(of)
		for _, r := range requests {
			if r.own && of != ownAttributes && of != ownEverything {
				continue
			}
			r.k.Resources = resource.Vector{"cpu": 4000, "memory": 8 << 30, "slots": 1}
			c.index.Query(r.k)
			b.Run(of.String()+"/"+r.name, func(b *testing.B) {
				coreTime(b, func() {
					if _, refusal := c.index.Choose(r.k, int(r.workers), nil); refusal != nil {
						b.Fatalf("%+v", refusal)
					}
				})
			})
		}
	}
}

// BenchmarkSameShape places a batch whose workers must be on executors of one shape. If all
// executors differ, no shape fits, but the search considers each of them.
func BenchmarkSameShape(b *testing.B) {
	k := constraint.Constraints{Resources: resource.Vector{"cpu": 4000, "memory": 8 << 30, "slots": 1}, SameShape: true}
	for _, of := range looks {
		c := fleetOf100000(of)
		b.Run(of.String(), func(b *testing.B) { coreTime(b, func() { c.index.Choose(k, 100, nil) }) })
	}
}

// BenchmarkChooseAcrossLargePools alternates between many requests. The pools that they
// name include the whole fleet.
func BenchmarkChooseAcrossLargePools(b *testing.B) {
	for _, sections := range []int{20, 50} {
		c := fleet(100_000, ownMemory)
		for i := range sections {
			pool := &model.Pool{Name: fmt.Sprintf("broad-%d", i), Attributes: map[string]string{"region": "here"}}
			c.Step(start, model.Changed{Ref: pool.Ref(), Record: pool, Create: c.revision + 1, Mod: c.revision + 1})
		}
		asked := 0
		b.Run(fmt.Sprint(sections), func(b *testing.B) {
			coreTime(b, func() {
				asked++
				k := constraint.Constraints{
					Resources: resource.Vector{"cpu": 4000, "memory": 8 << 30, "slots": 1},
					Pools:     []string{fmt.Sprintf("broad-%d", asked%sections)},
				}
				if _, refusal := c.index.Choose(k, 100, nil); refusal != nil {
					b.Fatalf("%+v", refusal)
				}
			})
		})
	}
}

// BenchmarkCycleOf128Groups decides one cycle with 128 groups. Each group has a batch of
// 100 workers, and all batches fit.
func BenchmarkCycleOf128Groups(b *testing.B) {
	for _, of := range []look{alike, ownResources} {
		c := fleetOf100000(of)
		var entries []model.Candidate
		for i := range 128 {
			entries = append(entries, model.Candidate{
				Key: keyOf("bench"), UID: fmt.Sprintf("bench-%d", i), Group: fmt.Sprint(i), Mod: c.revision + 1,
				Constraints: constraint.Constraints{Resources: resource.Vector{"cpu": int64(4000 + i), "memory": 8 << 30,
					"slots": 1}},
				Workers: model.WorkerSet{{First: 0, Last: 99, Number: 1}},
			})
		}
		b.Run(of.String(), func(b *testing.B) {
			coreTime(b, func() {
				if actions := c.Step(start, model.Input{Token: 1, Request: model.Cycle{Term: 1, Number: 1,
					Candidates: entries}}); len(actions) != 128 {
					b.Fatalf("%d actions", len(actions))
				}
				c.Step(start, model.Abandoned{})
			})
		})
	}
}

// BenchmarkNoFit refuses a batch. To refuse it, the search considers every executor that
// could fit.
func BenchmarkNoFit(b *testing.B) {
	for name, k := range map[string]constraint.Constraints{
		"TooLarge":  {Resources: resource.Vector{"gpu": 9, "slots": 1}},
		"NoneLeft":  {Resources: resource.Vector{"cpu": 32000, "slots": 9}},
		"NoSuchSKU": {Resources: resource.Vector{"slots": 1}, SKU: "none"},
		"NoSuch":    {Resources: resource.Vector{"slots": 1}, Attributes: map[string]string{"serial": "none"}},
		"Pool":      {Resources: resource.Vector{"slots": 1}, Pools: []string{"none"}},
		"TooMany":   {Resources: resource.Vector{"slots": 1}, Spread: constraint.Spread{By: "rack", Max: 1}},
	} {
		c := fleetOf100000(ownAttributes)
		c.index.Query(k)
		b.Run(name, func(b *testing.B) {
			coreTime(b, func() {
				if _, refusal := c.index.Choose(k, 100, nil); refusal == nil {
					b.Fatal("it fits")
				}
			})
		})
	}
}

func BenchmarkExplain(b *testing.B) {
	for _, of := range looks {
		for _, executors := range []int{10_000, 100_000} {
			c := fleet(executors, of)
			for name, attributes := range map[string]map[string]string{
				"Rack": {"rack": "3"}, "Serial": {"serial": "s-000500"}, "Unknown": {"zone": "a"},
			} {
				b.Run(fmt.Sprint(of, "/", executors, "/", name), func(b *testing.B) {
					k := constraint.Constraints{Resources: resource.Vector{"cpu": 8000, "gpu": 8, "slots": 8}, Attributes: attributes}
					coreTime(b, func() {
						if e := c.Explain("", k, 1000); e.Fitting == 1000 || len(e.Checks) == 0 {
							b.Fatalf("%+v", e)
						}
					})
				})
			}
		}
	}
}

// BenchmarkUsage computes the usage of 100,000 executors and 100,000 pending reservations
// in 1,000 groups. The goal is 20 ms.
func BenchmarkUsage(b *testing.B) {
	for _, of := range looks {
		c := fleet(100_000, of)
		apply := func(record model.Record) {
			c.Step(start, model.Changed{Ref: record.Ref(), Record: record, Create: c.revision + 1, Mod: c.revision + 1})
		}
		apply(&model.Ready{Since: start})
		for i := range 100_000 {
			uid := fmt.Sprintf("w%d", i)
			k := constraint.Constraints{Resources: resource.Vector{"cpu": int64(100 + i%500), "slots": 1}}
			switch i % 4 {
			case 0:
				k.SKU = fmt.Sprintf("SKU-%d", i%10)
			case 2:
				k.Attributes = map[string]string{"rack": fmt.Sprint(i % 50)}
			}
			apply(&model.Reservation{
				Key: keyOf(uid), UID: uid, State: model.Queued, Spec: model.Spec{Constraints: k},
				Workers: model.WorkerSet{{First: 0, Last: int32(i % 100), Number: 1}},
			})
		}
		ask := func(b *testing.B) func() {
			return func() {
				if u, err := c.Usage(start, ""); err != nil || len(u.SKUs) != 10 {
					b.Fatal(u, err)
				}
			}
		}
		b.Run(of.String(), func(b *testing.B) { coreTime(b, ask(b)) })
	}
}

func BenchmarkIdleExecutors(b *testing.B) {
	c := fleet(10_000, alike)
	for b.Loop() {
		if len(c.IdleExecutors("sku-3", 100)) != 100 {
			b.Fatal("not enough")
		}
	}
}

// BenchmarkMemory measures the memory of 100,000 executors after requests have named some
// attributes. Three in twenty executors have a worker.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := heapInUse()
		c := fleet(100_000, ownAttributes)
		for _, k := range []constraint.Constraints{
			{Spread: constraint.Spread{By: "rack", Max: 1}}, {Spread: constraint.Spread{By: "host", Max: 1}},
			{Attributes: map[string]string{"serial": "s-000001"}},
		} {
			c.index.Query(k)
		}
		b.ReportMetric(float64(heapInUse()-before)/(1<<20), "MiB")
		runtime.KeepAlive(c)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkListExecutors reads a page of 100 executors of 10,000 with their number.
func BenchmarkListExecutors(b *testing.B) {
	c := fleet(10_000, ownAttributes)
	for name, f := range map[string]Filter{
		"All": {}, "ByState": {State: model.ExecutorRegistered}, "ByAttributes": {Attributes: map[string]string{"RACK": "7"}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				list, _ := c.Executors(f, "host-005000", 100)
				if n := c.CountExecutors(f); n < len(list) {
					b.Fatal(n, len(list))
				}
			}
		})
	}
}
