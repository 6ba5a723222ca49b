package model_test

import (
	"testing"

	"berth.dev/pkg/model"
)

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		prefix, job string
		want        bool
	}{
		{"train", "train", true},
		{"train", "train-eu", true},
		{"train", "train.eu", true},
		{"train", "train_eu", true},
		{"train", "training", false},
		{"train", "trai", false},
		{"train-", "train-eu", true},
		{"train-", "train", false},
		{"team-1", "team-10", false},
		{"", "train", false},
		{"", "", false},
	} {
		if got := model.Covers(c.prefix, c.job); got != c.want {
			t.Errorf("Covers(%q, %q) = %v", c.prefix, c.job, got)
		}
	}
}

func TestTenantOfAJob(t *testing.T) {
	tenants := model.NewTenants([]model.Tenant{
		{Name: "c", Prefix: "team-1-ci"}, {Name: "a", Prefix: "team-1"}, {Name: "b", Prefix: "team-10"},
	})
	for job, want := range map[string]string{
		"team-1": "a", "team-1.x": "a", "team-1-cix": "a", "team-1-ci": "c", "team-1-ci-2": "c", "team-10": "b",
		"team-100": "", "team": "", "": "", "other": "",
	} {
		got := ""
		if tenant := tenants.Of(job); tenant != nil {
			got = tenant.Name
		}
		if got != want {
			t.Errorf("the tenant of %q is %q, want %q", job, got, want)
		}
	}
	if all := tenants.All(); len(all) != 3 || all[0].Name != "a" {
		t.Errorf("all tenants: %v", all)
	}
	var none *model.Tenants
	if none.Of("x") != nil || none.All() != nil {
		t.Error("nil has tenants")
	}
}
