package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth.dev/pkg/model"
)

// A list with attributes has exactly the executors that have all of them, ignoring case. The
// count is that of the list, whatever the filter.
func TestExecutorsByAttributes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lead(DefaultConfig())
		values := rapid.SampledFrom([]string{"", "a", "A", "b"})
		draw := func() map[string]string {
			attributes := map[string]string{}
			for _, name := range []string{"zone", "Rack"} {
				if value := values.Draw(t, name); value != "" {
					attributes[name] = value
				}
			}
			return attributes
		}
		has := map[string]map[string]string{}
		for i := range rapid.IntRange(0, 6).Draw(t, "executors") {
			g := smallAgent(fmt.Sprint("h", i), "n")
			g.SKU = rapid.SampledFrom([]string{"small", "large"}).Draw(t, "sku")
			g.Attributes = draw()
			if _, err := r.do(g); err != nil {
				t.Fatal(err)
			}
			has[g.ID] = g.Attributes
		}
		filter := Filter{SKU: rapid.SampledFrom([]string{"", "SMALL"}).Draw(t, "wanted"), Attributes: map[string]string{}}
		for name, value := range draw() {
			filter.Attributes[strings.ToUpper(name)] = value
		}
		var want []string
		for _, id := range slices.Sorted(maps.Keys(has)) {
			e, _ := r.core.Executor(id)
			selected := filter.SKU == "" || strings.EqualFold(e.SKU, filter.SKU)
			for name, value := range filter.Attributes {
				found := false
				for own, of := range has[id] {
					found = found || strings.EqualFold(own, name) && strings.EqualFold(of, value)
				}
				selected = selected && found
			}
			if selected {
				want = append(want, id)
			}
		}
		var got []string
		for after, more := "", true; more; {
			var list []ExecutorView
			list, more = r.core.Executors(filter, after, 2)
			for _, e := range list {
				got, after = append(got, e.ID), e.ID
			}
		}
		if n := r.core.CountExecutors(filter); !slices.Equal(got, want) || n != len(want) {
			t.Fatalf("%+v selects %v and counts %d, want %v", filter, got, n, want)
		}
	})
}

// GetExecutor has the leases on the executor, and which of them wait for a bind. Lists do not
// have them.
func TestLeasesOfAnExecutor(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 10, 10))
	r.apply(&model.Reservation{Key: keyOf("held"), UID: "held", Workers: model.WorkerSet{{Last: 1, Number: 1}},
		Spec: model.Spec{Constraints: cpu(1), Hold: true}, State: model.Queued})
	expectGranted(t, r.cycle(r.entry("held"), r.queue("run@web", 3, cpu(1))))
	check := func(what string, want ...LeaseView) {
		t.Helper()
		v, _ := r.core.Executor("h1")
		if diff := cmp.Diff(want, v.Leases); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
		if list, _ := r.core.Executors(Filter{}, "", 10); list[0].Leases != nil {
			t.Errorf("%s: the list has %v", what, list[0].Leases)
		}
	}
	running := LeaseView{Key: keyOf("run@web"), UID: "run@web", Workers: 3}
	check("held", LeaseView{Key: keyOf("held"), UID: "held", Workers: 2, Held: true}, running)
	r.failOver()
	check("after a failover", LeaseView{Key: keyOf("held"), UID: "held", Workers: 2, Held: true}, running)
	bound := *r.keys[refOf("held")].record.(*model.Reservation)
	bound.BoundAt = r.now
	r.write(&bound)
	r.catchUp()
	check("bound", LeaseView{Key: keyOf("held"), UID: "held", Workers: 2}, running)
	r.dispatch("run@web")
	r.end("run@web", model.WorkerCompleted, 0)
	r.catchUp()
	r.settle()
	running.Workers = 2
	check("a worker has ended", LeaseView{Key: keyOf("held"), UID: "held", Workers: 2}, running)
	r.state("held", model.Cancelled)
	r.catchUp()
	r.settle()
	check("cancelled", running)
}

func TestLeasesOfAnExecutorAreBounded(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", maxLeases+1, maxLeases+1))
	for i := range maxLeases + 1 {
		chunk := &model.LeaseChunk{UID: fmt.Sprintf("u%05d", i), Key: keyOf("u"), Chunks: 1, Total: 1, GrantedAt: r.now,
			Workers: []model.Placement{{Worker: model.WorkerID{Number: 1}, Ordinal: r.core.hosts["h1"].Record.Ordinal}}}
		r.core.set(chunk.Ref(), &entry{record: chunk, create: r.rev, mod: r.rev})
	}
	if v, _ := r.core.Executor("h1"); len(v.Leases) != maxLeases || v.Workers != maxLeases+1 {
		t.Errorf("%d leases of %d workers", len(v.Leases), v.Workers)
	}
}
