package constraint_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
	_ "berth.dev/testkit/fixedseed"
	"pgregory.net/rapid"
)

type constraints = constraint.Constraints

func full() constraints {
	return constraints{
		Resources:  resource.Vector{"cpu": 1000, "slots": 1},
		SKU:        "Small",
		Attributes: map[string]string{"Zone": "A", "rack": "r1"},
		Pools:      []string{"Blue", "green"},
		Role:       "Batch",
	}
}

func TestGroupIsEqualForTheSameQueue(t *testing.T) {
	base := full().Group()
	for name, change := range map[string]func(*constraints){
		"case of sku":        func(c *constraints) { c.SKU = "SMALL" },
		"case of attributes": func(c *constraints) { c.Attributes = map[string]string{"ZONE": "a", "Rack": "R1"} },
		"order of pools":     func(c *constraints) { c.Pools = []string{"GREEN", "blue", "Blue"} },
		"case of role":       func(c *constraints) { c.Role = "bAtch" },
		"zero resource":      func(c *constraints) { c.Resources = c.Resources.Plus(0, resource.Vector{"gpu": 1}) },
		"avoid":              func(c *constraints) { c.Avoid = []string{"h1"} },
		"spread":             func(c *constraints) { c.Spread = constraint.Spread{By: "rack", Max: 1} },
		"sameShape":          func(c *constraints) { c.SameShape = true },
		"pack":               func(c *constraints) { c.Pack = true },
	} {
		c := full()
		change(&c)
		if c.Group() != base {
			t.Errorf("%s makes another queue: %s", name, c.Canonical())
		}
	}
}

// Defaults are added to what a request does not name, and can be taken away again.
func TestDefaultAttributes(t *testing.T) {
	requested := full()
	with := requested.WithDefaults(map[string]string{"ZONE": "b", "arch": "amd64", "os": "linux"})
	if want := map[string]string{"Zone": "A", "rack": "r1", "arch": "amd64", "os": "linux"}; !maps.Equal(with.Attributes,
		want) || !slices.Equal(with.Defaults, []string{"arch", "os"}) {
		t.Errorf("got %v, by default %q", with.Attributes, with.Defaults)
	}
	if with.Group() == requested.Group() {
		t.Error("the group does not depend on defaults")
	}
	if again := with.Requested(); again.Canonical() != requested.Canonical() || len(again.Defaults) != 0 {
		t.Errorf("requested: %s, by default %q", again.Canonical(), again.Defaults)
	}
	if values := with.DefaultValues(); !maps.Equal(values, map[string]string{"arch": "amd64", "os": "linux"}) {
		t.Errorf("the values are %v", values)
	}
	// New defaults replace earlier ones.
	if other := with.WithDefaults(map[string]string{"os": "plan9"}); other.Attributes["os"] != "plan9" ||
		!slices.Equal(other.Defaults, []string{"os"}) || other.Attributes["arch"] != "" {
		t.Errorf("got %v, by default %q", other.Attributes, other.Defaults)
	}
	if len(requested.Attributes) != 2 {
		t.Errorf("the request was changed to %v", requested.Attributes)
	}
}

func TestGroupDiffersForOtherConstraints(t *testing.T) {
	seen := map[string]string{full().Group(): "unchanged"}
	for name, change := range map[string]func(*constraints){
		"resources":      func(c *constraints) { c.Resources = resource.Vector{"cpu": 1001, "slots": 1} },
		"sku":            func(c *constraints) { c.SKU = "large" },
		"no sku":         func(c *constraints) { c.SKU = "" },
		"attribute":      func(c *constraints) { c.Attributes = map[string]string{"zone": "b", "rack": "r1"} },
		"less attribute": func(c *constraints) { c.Attributes = map[string]string{"zone": "a"} },
		"pools":          func(c *constraints) { c.Pools = []string{"blue"} },
		"role":           func(c *constraints) { c.Role = "" },
	} {
		c := full()
		change(&c)
		if other, ok := seen[c.Group()]; ok {
			t.Errorf("%s and %s share a queue", name, other)
		}
		seen[c.Group()] = name
	}
}

func TestMatchNamesTheFirstFailedCheck(t *testing.T) {
	host := constraint.Host{ID: "h1", SKU: "SMALL", Attributes: map[string]string{"zone": "a", "RACK": "R1"},
		Pools: []string{"BLUE", "night"}}
	none := constraint.Check{}
	for _, test := range []struct {
		name   string
		change func(*constraints)
		want   constraint.Check
	}{
		{"all equal but for case", func(*constraints) {}, none},
		{"sku", func(c *constraints) { c.SKU = "large" }, constraint.Check{Name: "sku", Want: "large", Have: "SMALL"}},
		{"value", func(c *constraints) { c.Attributes["Zone"] = "b" },
			constraint.Check{Name: "attributes.Zone", Want: "b", Have: "a"}},
		{"absent", func(c *constraints) { c.Attributes["disk"] = "ssd" },
			constraint.Check{Name: "attributes.disk", Want: "ssd"}},
		{"absent is not empty", func(c *constraints) { c.Attributes["disk"] = "" },
			constraint.Check{Name: "attributes.disk"}},
		{"pools", func(c *constraints) { c.Pools = []string{"red", "green"} },
			constraint.Check{Name: "pools", Want: "red,green", Have: "BLUE,night"}},
		{"any pool", func(c *constraints) { c.Pools = []string{"red", "Night"} }, none},
		{"avoid", func(c *constraints) { c.Avoid = []string{"h0", "h1"} },
			constraint.Check{Name: "avoid", Want: "another executor", Have: "h1"}},
	} {
		c := full()
		test.change(&c)
		ok, failed := c.Match(host)
		if ok != (test.want == none) || failed != test.want {
			t.Errorf("%s: %v %+v, want %+v", test.name, ok, failed, test.want)
		}
	}
	if ok, failed := (constraints{}).Match(constraint.Host{}); !ok {
		t.Errorf("no constraints, and %+v fails", failed)
	}
}

// anyText draws letters of several scripts. Some of them fold to others, and some fold to
// ASCII letters.
var anyText = rapid.StringOfN(rapid.SampledFrom([]rune("aAkKKsSſzåÅÅµμΜßẞ1-")), 0, 4, -1)

// Grouping and matching follow one rule: two spellings are in the same group exactly if
// they match the same executors. If the rules differed, two queues would use the same
// executors.
func TestGroupingAndMatchingFoldAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyText.Draw(t, "a"), anyText.Draw(t, "b")
		grouped := constraints{SKU: a}.Group() == constraints{SKU: b}.Group()
		matches, _ := constraints{Attributes: map[string]string{"x": a}}.Match(constraint.Host{Attributes: map[string]string{"X": b}})
		if grouped != matches || grouped != (constraint.Fold(a) == constraint.Fold(b)) {
			t.Fatalf("%q and %q: grouped %v, matching %v", a, b, grouped, matches)
		}
	})
}

func TestFoldMatchesEqualFold(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if folded := constraint.Fold(string(r)); !strings.EqualFold(folded, string(r)) {
			t.Fatalf("%q folds to %q", r, folded)
		}
		if next := unicode.SimpleFold(r); constraint.Fold(string(next)) != constraint.Fold(string(r)) {
			t.Fatalf("%q and %q are spellings of one letter, folded to %q and %q", r, next, constraint.Fold(string(r)),
				constraint.Fold(string(next)))
		}
	}
	if got := constraint.Fold("Zone-K"); got != "zone-k" {
		t.Errorf("folded to %q", got)
	}
}

// A matcher returns the same results as its constraints and may be used many times.
func TestMatcherEqualsMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.SampledFrom([]string{"", "a", "A", "b"})
		attributes := rapid.MapOfN(rapid.SampledFrom([]string{"zone", "ZONE"}), small, 0, 2)
		c := constraints{
			SKU: small.Draw(t, "sku"), Attributes: attributes.Draw(t, "attributes"),
			Pools: rapid.SliceOfN(small, 0, 2).Draw(t, "pools"), Avoid: rapid.SliceOfN(small, 0, 1).Draw(t, "avoid"),
		}
		m := c.Matcher()
		for range 3 {
			h := constraint.Host{ID: small.Draw(t, "id"), SKU: small.Draw(t, "have"), Attributes: attributes.Draw(t, "has"),
				Pools: rapid.SliceOfN(small, 0, 2).Draw(t, "in")}
			ok, failed := m.Match(h)
			wantOK, want := c.Match(h)
			if ok != wantOK || failed != want {
				t.Fatalf("%+v on %+v: %v %+v, want %v %+v", c, h, ok, failed, wantOK, want)
			}
		}
	})
}
