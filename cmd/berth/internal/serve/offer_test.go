package serve

import (
	"maps"
	"strings"
	"testing"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/resource"
)

func TestSetAside(t *testing.T) {
	has := resource.Vector{"cpu": 4000, "slots": 4}
	web := map[string]resource.Vector{"web": {"cpu": 1000, "slots": 1}}
	both := map[string]resource.Vector{"web": {"cpu": 1000, "slots": 1}, "batch": {"cpu": 3000}}
	for text, want := range map[string]map[string]resource.Vector{
		"":                                    {},
		"web:cpu=1000 slots=1":                web, // as a command line splits it
		"web:cpu=1000,slots=1":                web, // as a file may have it
		"web:cpu=1000 web:slots=1":            web,
		"web:cpu=1000,slots=1;batch:cpu=3000": both,
		"web:cpu=1000 slots=1 batch:cpu=3000": both,
	} {
		got, err := setAside(strings.Fields(text), has)
		if err != nil || !maps.EqualFunc(got, want, resource.Vector.Equal) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
}

func TestSetAsideRefuses(t *testing.T) {
	has := resource.Vector{"cpu": 4000, "slots": 4}
	for _, text := range []string{
		"cpu=1000", ":cpu=1000", "web", "web:", "web:cpu", "web:=1", // not role:name=amount
		"web:cpu=-1", "web:cpu=1.5", "web:cpu=", // not an amount
		"web:cpu=1 cpu=2", "web:cpu=1 Web:slots=1", // twice
		"web:cpu=4001", "web:gpu=1", "web:cpu=2000 batch:cpu=2001", // more than there is
	} {
		got, err := setAside(strings.Fields(text), has)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != "--reserved" {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}
