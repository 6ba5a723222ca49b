package quantity

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "berth.dev/testkit/fixedseed"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int64
	}{
		{"cpu", "2", 2000}, {"cpu", "0", 0}, {"cpu", "0.5", 500}, {"cpu", ".25", 250}, {"cpu", "500m", 500},
		{"cpu", "2000m", 2000},
		{"cpu", "1.5", 1500}, {"cpu", "4096", 4_096_000}, {"cpu", "4k", 4_000_000}, {"cpu", "1e3", 1_000_000},
		{"memory", "4", 4}, {"memory", "4Gi", 4 << 30}, {"memory", "1.5Gi", 3 << 29}, {"memory", "4G", 4e9},
		{"memory", "1000m", 1},
		{"memory", "4294967296", 4 << 30}, {"disk", "2Ti", 2 << 40}, {"disk", "4Ei", 1 << 62},
		{"gpu", "8", 8}, {"tokens", "2k", 2000}, {"slots", "1000m", 1},
	} {
		if got, err := Parse(c.name, c.text); got != c.want || err != nil {
			t.Errorf("%s %q: %d, %v; want %d", c.name, c.text, got, err, c.want)
		}
	}
}

func TestParseRejectsPartsOfBaseUnits(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"cpu", "4097", "must be at most 4096 cores, got 4097; a number without a suffix is in cores, and 2000m is two cores"},
		{"cpu", "4096001m", "must be at most 4096 cores, got 4096001m"},
		{"cpu", "0.0005", "must be a whole number of thousandths of a core, got 0.0005"},
		{"cpu", "0.5m", "must be a whole number of thousandths of a core, got 0.5m"},
		{"cpu", "0.9999999", `must be a quantity such as 2 or 500m, got "0.9999999"`},
		{"cpu", "-1", "must not be negative, got -1"},
		{"cpu", "two", `must be a quantity such as 2 or 500m, got "two"`},
		{"cpu", "", `must be a quantity such as 2 or 500m, got ""`},
		{"memory", "0.5", "must be a whole number of bytes, got 0.5"},
		{"memory", "500m", "must be a whole number of bytes, got 500m"},
		{"memory", "4GB", `must be a quantity such as 4Gi or 512Mi, got "4GB"`},
		{"memory", "8Ei", "must be at most 4611686018427387904, got 8Ei"},
		{"memory", "9223372036854775808", "must be at most 4611686018427387904, got 9223372036854775808"},
		{"memory", "1e99", "must be at most 4611686018427387904, got 1e99"},
		{"memory", "1e1000000000", `must be a quantity such as 4Gi or 512Mi, got "1e1000000000"`},
		{"gpu", "0.5", "must be a whole number of units, got 0.5"},
		{"gpu", "1n", `must be a quantity such as 2, got "1n"`},
		{"gpu", strings.Repeat("9", 1000), `must be a quantity such as 2, got "9999999999999999999999999999999999999999…"`},
	} {
		if n, err := Parse(c.name, c.text); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %q: %d, %v; want %s", c.name, c.text, n, err, c.want)
		}
	}
}

func TestPlainNumbersAreBaseUnits(t *testing.T) {
	for text, want := range map[string]int64{"2": 2, "500m": 500, "9223372036854775807": 1<<63 - 1, "-1": -1} {
		if n, err := Base("cpu", text); n != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "2.5", "1e3", "9223372036854775808", "m", "x", "5k"} {
		if n, err := Base("cpu", text); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// If plain numbers are base units, no error suggests cores without a suffix.
func TestErrorsAboutBaseUnits(t *testing.T) {
	const (
		cores = "; a number without a suffix is a whole number of thousandths of a core"
		bytes = "; a number without a suffix is a whole number of bytes"
	)
	for _, c := range []struct{ name, text, want string }{
		{"cpu", "two", `must be a quantity such as 500m or 1500m, got "two"` + cores},
		{"cpu", "1.5", `must be a quantity such as 500m or 1500m, got "1.5"` + cores},
		{"cpu", "", `must be a quantity such as 500m or 1500m, got ""` + cores},
		{"cpu", "5000k", "must be at most 4096 cores, got 5000k; a number without a suffix is in thousandths of a core, and 2000m is two cores"},
		{"cpu", "0.5m", "must be a whole number of thousandths of a core, got 0.5m"},
		{"cpu", "-500m", "must not be negative, got -500m"},
		{"memory", "4GB", `must be a quantity such as 4Gi or 512Mi, got "4GB"` + bytes},
		{"disk", "1.5", `must be a quantity such as 4Gi or 512Mi, got "1.5"` + bytes},
		{"gpu", "one", `must be a whole number such as 2, got "one"`},
		{"gpu", "500m", "must be a whole number of units, got 500m"},
	} {
		if n, err := Base(c.name, c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s %q: %d, %v; want %s", c.name, c.text, n, err, c.want)
		}
	}
}

func TestString(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int64
		want string
	}{
		{"cpu", 2000, "2000m"}, {"cpu", 0, "0"}, {"cpu", 1, "1m"},
		{"memory", 4 << 30, "4Gi"}, {"memory", 3 << 29, "1536Mi"}, {"memory", 1000, "1000"}, {"disk", 2 << 40, "2Ti"},
		{"gpu", 8, "8"}, {"gpu", 1 << 20, "1048576"}, {"memory", -1024, "-1024"},
		{"memory", 1<<63 - 1024, "9223372036854774784"},
	} {
		if got := String(c.name, c.n); got != c.want {
			t.Errorf("%s %d: %s, want %s", c.name, c.n, got, c.want)
		}
	}
}

// A formatted quantity parses to the same amount. This holds if plain numbers are cores and
// if they are base units.
func TestParseReadsWhatStringWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"cpu", "memory", "disk", "gpu", "slots"}).Draw(t, "name")
		most := int64(Max)
		if name == CPU {
			most = MaxCores * milli
		}
		n := rapid.Int64Range(0, most).Draw(t, "n")
		if shift := rapid.IntRange(0, 40).Draw(t, "shift"); name != CPU {
			n = n >> shift << shift
		}
		text := String(name, n)
		if got, err := Parse(name, text); got != n || err != nil {
			t.Fatalf("%s: Parse(%q) is %d, %v; want %d", name, text, got, err, n)
		}
		if got, err := Base(name, text); got != n || err != nil {
			t.Fatalf("%s: Base(%q) is %d, %v; want %d", name, text, got, err, n)
		}
	})
}

func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int64
		doubt bool
	}{
		{"cpu", 9, true}, {"cpu", 10, false}, {"cpu", 0, false},
		{"memory", 4, true}, {"memory", 1<<20 - 1, true}, {"memory", 1 << 20, false}, {"gpu", 1, false},
	} {
		if err := Doubt(c.name, c.n); (err != nil) != c.doubt {
			t.Errorf("%s %d: %v", c.name, c.n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"2", "500m", "4Gi", "1.5Gi", "0.0005", "1e3", "1e99", "8Ei", "-1", "", "1e1000000000",
		".5", "4096", "4097", "9223372036854775808"} {
		f.Add("cpu", text)
		f.Add("memory", text)
		f.Add("gpu", text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		n, err := Parse(name, text)
		if err != nil {
			return
		}
		if n < 0 || n > Max || name == CPU && n > MaxCores*milli {
			t.Fatalf("%s %q: %d", name, text, n)
		}
		if again, err := Parse(name, String(name, n)); again != n || err != nil {
			t.Fatalf("%s %q: %d is written %s and read as %d, %v", name, text, n, String(name, n), again, err)
		}
	})
}
