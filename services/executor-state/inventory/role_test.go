package inventory

import (
	"slices"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/resource"
)

func TestReservedSharesAreChecked(t *testing.T) {
	r := lead(DefaultConfig())
	for _, c := range []struct {
		why      string
		reserved map[string]resource.Vector
		fields   []string
	}{
		{"the whole capacity", map[string]resource.Vector{"web": {"cpu": 3000}, "batch": {"cpu": 1000}}, nil},
		{"default slots", map[string]resource.Vector{"web": {"slots": 1}}, nil},
		{"nothing", map[string]resource.Vector{"web": {}}, nil},
		{"more in all", map[string]resource.Vector{"a": {"cpu": 3000}, "b": {"cpu": 1001}}, []string{"reserved.b.cpu"}},
		{"a resource that the executor does not have", map[string]resource.Vector{"a": {"gpu": 1}}, []string{"reserved.a.gpu"}},
		{"less than nothing", map[string]resource.Vector{"a": {"cpu": -1}}, []string{"reserved.a.cpu"}},
		{"bad names", map[string]resource.Vector{"": {}, "-": {}}, []string{"reserved.", "reserved.-"}},
		{"one role twice", map[string]resource.Vector{"web": {}, "WEB": {}}, []string{"reserved.web"}},
	} {
		_, err := r.do(Register{ID: "h1", Address: "a", Nonce: c.why, Resources: resource.Vector{"cpu": 4000},
			Reserved: c.reserved})
		var fields []string
		if err != nil {
			for _, f := range fault.Of(err).Fields {
				fields = append(fields, f.Name)
			}
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: refused %v, want %v", c.why, fields, c.fields)
		}
	}
}

// If no executor reserves shares for roles, roles do not affect matching.
func TestRolesWithoutSharesUseTheCommonRest(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 4000, 4))
	k := cpu(1000)
	k.Role = "web"
	expectGranted(t, r.cycle(r.queue("u", 4, k)))
	view, _ := r.core.Executor("h1")
	if view.Used["cpu"] != 4000 || view.Workers != 4 {
		t.Errorf("%+v", view)
	}
	if role := r.core.leases["u"].inOrder()[0].Role; role != "web" {
		t.Errorf("the lease is of role %q", role)
	}
}
