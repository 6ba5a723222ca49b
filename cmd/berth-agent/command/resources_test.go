package command

import (
	"maps"
	"strings"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/quantity"
	"berth.dev/pkg/resource"
)

func TestParseReserved(t *testing.T) {
	has := resource.Vector{"cpu": 4000, "slots": 4}
	web := map[string]resource.Vector{"web": {"cpu": 1000, "slots": 1}}
	both := map[string]resource.Vector{"web": {"cpu": 1000, "slots": 1}, "batch": {"cpu": 3000}}
	for text, want := range map[string]map[string]resource.Vector{
		"":                                    {},
		"web:cpu=1 slots=1":                   web, // elements as a command line splits them
		"web:cpu=1,slots=1":                   web, // one element, as a configuration file may contain it
		"web:cpu=1 web:slots=1":               web,
		"web:cpu=1,slots=1;batch:cpu=3000m":   both,
		"web:cpu=1 slots=1 batch:cpu=3000m":   both,
		"web:cpu=25%,slots=49%":               web, // rounded down
		"web:cpu=25% slots=25% batch:cpu=75%": both,
	} {
		got, err := parseReserved(strings.Fields(text), has, unheard)
		if err != nil || !maps.EqualFunc(got, want, resource.Vector.Equal) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
}

func TestParseReservedRefuses(t *testing.T) {
	has := resource.Vector{"cpu": 4000, "slots": 4}
	for _, text := range []string{
		"cpu=1", ":cpu=1", "web", "web:", "web:cpu", "web:=1", // not role:name=amount
		"web:cpu=-1", "web:slots=1.5", "web:cpu=", "web:cpu=5000", // not an amount
		"web:cpu=1 cpu=2", "web:cpu=1 Web:slots=1", // twice
		"web:cpu=4001m", "web:gpu=1", "web:cpu=2 batch:cpu=2001m", // more than the capacity
		"web:cpu=0%", "web:cpu=101%", "web:cpu=-1%", "web:cpu=%", "web:cpu=+5%", "web:cpu=2.5%", "web:cpu=1e1%",
		"web:cpu=356%", "web:cpu=5%%", "web:cpu=18446744073709551617%", // not a percentage from 1 to 100
		"web:gpu=1%", "web:cpu=60% batch:cpu=41%", // of nothing, more than the capacity
	} {
		got, err := parseReserved(strings.Fields(text), has, unheard)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != "--reserved" {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

// A percentage is a part of what the executor has, rounded down to whole base units: the
// shares of all roles fit. An error names the option and the value. If nothing is left after
// rounding, there is a warning.
func TestReservedPercentages(t *testing.T) {
	has := resource.Vector{"slots": 19, "memory": quantity.Max, "cpu": 999}
	var warned []string
	got, err := parseReserved([]string{"a:slots=10%,memory=99%", "b:slots=5%,cpu=100%"}, has,
		func(flag, text string) { warned = append(warned, flag+": "+text) })
	want := map[string]resource.Vector{"a": {"slots": 1, "memory": quantity.Max/100*99 + quantity.Max%100*99/100},
		"b": {"slots": 0, "cpu": 999}}
	if err != nil || !maps.EqualFunc(got, want, resource.Vector.Equal) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "5% of 19") {
		t.Errorf("warned %q", warned)
	}
	for text, want := range map[string]string{
		"a:slots=0%":          `--reserved: slots must be a whole percentage between 1% and 100%, got "0%"`,
		"a:gpu=10%":           "--reserved: gpu=10% is a percentage of a resource that the executor does not have",
		"a:cpu=60%,b:cpu=1%":  "",
		"a:cpu=60%,b:cpu=41%": "--reserved: b:cpu=41% is 409m, more than the 400m that are left of 999m",
	} {
		_, err := parseReserved([]string{text}, has, unheard)
		if f := fault.Of(err); want == "" && err != nil || want != "" && (f == nil || f.Message != want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestResourcesOfAnAgentAreQuantities checks the amounts of --resources, and the warnings.
func TestResourcesOfAnAgentAreQuantities(t *testing.T) {
	var warned []string
	warn := func(flag, text string) { warned = append(warned, flag+": "+text) }
	got, err := executorResources(AgentConfig{Resources: []string{"cpu=2", "memory=4Gi", "gpu=8"}}, warn)
	want := resource.Vector{"cpu": 2000, "memory": 4 << 30, "gpu": 8, "slots": 1}
	if err != nil || !got.Equal(want) || len(warned) > 0 {
		t.Errorf("%v %v, warned %q; want %v", got, err, warned, want)
	}
	if _, err := executorResources(AgentConfig{Resources: []string{"cpu=5m", "memory=4"}}, warn); err != nil ||
		len(warned) != 2 {
		t.Errorf("%v, warned %q; want two warnings", err, warned)
	}
	_, err = executorResources(AgentConfig{Resources: []string{"cpu=8000"}}, warn)
	if f := fault.Of(err); f == nil || !strings.Contains(f.Message, "2000m") || f.Fields[0].Name != "--resources" {
		t.Errorf("8,000 cores: %v", err)
	}
}

// TestResourcesBeyondTheHost checks that the agent warns of each resource of which the host has less.
func TestResourcesBeyondTheHost(t *testing.T) {
	has, err := agent.Detect(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var warned []string
	warn := func(flag, text string) { warned = append(warned, flag+": "+text) }
	if warnBeyond(t.TempDir(), has, warn); len(warned) > 0 {
		t.Errorf("the detected resources: warned %q", warned)
	}
	configured := resource.Vector{"cpu": has["cpu"] + 1000, "memory": 1000 << 40, "disk": has["disk"], "gpu": 100}
	if warnBeyond(t.TempDir(), configured, warn); len(warned) != 2 ||
		!strings.HasPrefix(warned[1], "--resources: memory: 1000Ti is more than the ") {
		t.Errorf("warned %q", warned)
	}
}
