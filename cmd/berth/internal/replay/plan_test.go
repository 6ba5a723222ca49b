package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"berth.dev/client"
	"berth.dev/pkg/resource"
)

func instance(app string, cpu, created, deleted int64) Instance {
	return Instance{App: app, Role: "CN", Each: resource.Vector{"cpu": cpu}, Created: created, Deleted: deleted}
}

func (a Action) String() string {
	verb := "ask"
	if a.Cancel {
		verb = "cancel"
	}
	return fmt.Sprintf("%d %s %s", a.At, verb, a.Batch.Key)
}

func script(p *Plan) string {
	lines := make([]string, len(p.Actions))
	for i, a := range p.Actions {
		lines[i] = a.String()
	}
	return strings.Join(lines, "\n")
}

func TestPlan(t *testing.T) {
	p := NewPlan([]Instance{
		instance("b", 1, 20, 30),
		instance("a", 1, never, 20),
		instance("a", 3, 20, never),
		instance("a", 2, 20, 25), // the other instance is never deleted, so the batch is never cancelled
		instance("a", 2, never, 10),
		instance("c", 1, 20, 7),  // deleted before it was created
		instance("a", 1, 40, 50), // beyond the limit
	}, "x-", 4)
	want := strings.Join([]string{
		"0 ask x-a/CN/0",
		"20 cancel x-a/CN/0", // frees capacity for
		"20 ask x-b/CN/20",
		"20 ask x-a/CN/20",
		"20 ask x-c/CN/20",
		"20 cancel x-c/CN/20",
		"30 cancel x-b/CN/20",
	}, "\n")
	if diff := cmp.Diff(want, script(p)); diff != "" {
		t.Error(diff)
	}
	batches := []*Batch{
		{Key: client.Key{Job: "x-a", Stage: "CN", Name: "0"}, First: 0, Workers: 2, Each: resource.Vector{"cpu": 2},
			Created: 0, Deleted: 20},
		{Key: client.Key{Job: "x-b", Stage: "CN", Name: "20"}, First: 0, Workers: 1, Each: resource.Vector{"cpu": 1},
			Created: 20, Deleted: 30},
		{Key: client.Key{Job: "x-a", Stage: "CN", Name: "20"}, First: 2, Workers: 2, Each: resource.Vector{"cpu": 3},
			Created: 20, Deleted: never},
		{Key: client.Key{Job: "x-c", Stage: "CN", Name: "20"}, First: 0, Workers: 1, Each: resource.Vector{"cpu": 1},
			Created: 20, Deleted: 7},
	}
	if diff := cmp.Diff(batches, p.Batches, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if jobs := p.Jobs(); !cmp.Equal(jobs, []string{"x-a", "x-b", "x-c"}) || p.Workers() != 6 {
		t.Errorf("jobs %v, %d workers", jobs, p.Workers())
	}
	r := p.Batches[2].Request()
	if len(r.Workers) != 2 || r.Workers[0].Index != 2 || r.Workers[1].Index != 3 || r.Workers[0].Number != 1 ||
		r.Constraints.Resources["cpu"] != 3 || r.Name != "20" {
		t.Errorf("request %v", r)
	}
}
