package identity_test

import (
	"strings"
	"testing"

	"berth.dev/pkg/identity"
)

func TestIdentitiesAreParsed(t *testing.T) {
	for uri, problem := range map[string]string{
		"berth://default/job/train":            "",
		"berth://default/agent/host-1.example": "",
		"berth://default/agent/sim-*":          "",
		"berth://default/agent/*":              "",
		"berth://default/job/train-*":          "name: must be",
		"berth://default/agent/a*b":            "name: must be",
		"berth://default/king/a":               "role: must be one of",
		"berth://default/nobody/a":             "role: must be one of",
		"berth://default/job":                  "is not berth://",
		"berth://default/job/a/b":              "is not berth://",
		"spiffe://default/job/a":               "is not berth://",
		"berth:///job/a":                       "cluster: must be",
		"berth://default/job/":                 "name: must be",
		"":                                     "is not berth://",
	} {
		id, err := identity.Parse(uri)
		switch {
		case problem == "" && (err != nil || id.String() != uri):
			t.Errorf("%s: %v, %v", uri, id, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: %v, want %s", uri, err, problem)
		}
	}
}

func TestAnAgentCoversItsExecutor(t *testing.T) {
	for _, c := range []struct {
		role           identity.Role
		name, executor string
		want           bool
	}{
		{identity.Agent, "host-1", "host-1", true},
		{identity.Agent, "host-1", "host-10", false},
		{identity.Agent, "host-1", "host-1-a", false},
		{identity.Agent, "sim-*", "sim-7", true},
		{identity.Agent, "sim-*", "host", false},
		{identity.Agent, "*", "host", true},
		{identity.Operator, "a", "host", true},
	} {
		id := identity.Identity{Cluster: "c", Role: c.role, Name: c.name}
		if got := id.CoversExecutor(c.executor); got != c.want {
			t.Errorf("%v covers %s: %v", id, c.executor, got)
		}
	}
}

// Parse accepts only what String writes.
func FuzzParse(f *testing.F) {
	f.Add("berth://default/job/train")
	f.Add("berth://default/agent/sim-*")
	f.Fuzz(func(t *testing.T, uri string) {
		if id, err := identity.Parse(uri); err == nil && id.String() != uri {
			t.Errorf("%q became %q", uri, id)
		}
	})
}
