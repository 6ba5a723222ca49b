package doctor

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
)

// Verdict of a check. A warning says that something can break, or is less than it
// ought to be; a failure that something is broken. What was skipped was not looked
// at, because nobody said how.
type Verdict string

// Verdicts, as they are written.
const (
	OK      Verdict = "OK"
	Warning Verdict = "WARN"
	Failure Verdict = "FAIL"
	Skipped Verdict = "SKIP"
)

// Check is one thing that was looked at. One that is not OK says what to do.
type Check struct {
	Name    string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	Do      string  `json:"do,omitempty"`
}

// Failed counts the checks that failed.
func Failed(checks []Check) int {
	n := 0
	for _, c := range checks {
		if c.Verdict == Failure {
			n++
		}
	}
	return n
}

// Unreachable reports whether none of the gateways could be called or answered in time.
func Unreachable(f Facts) bool {
	return !slices.ContainsFunc(f.Gateways, func(g Gateway) bool { return !g.Unreachable })
}

// Judge says what the facts mean, always in the same order.
func Judge(f Facts) []Check {
	checks := append(gateways(f.Gateways), listeners(f.Listeners)...)
	if f.Answered {
		for _, s := range f.Services {
			checks = append(checks, leadership(s), replicas(s))
		}
		checks = append(checks, versions(f.Services), readiness(f))
		checks = append(checks, findings(f)...)
		checks = append(checks, clocks(f)...)
	}
	checks = append(checks, etcd(f.Etcd)...)
	return append(checks, certificates(f)...)
}

func ok(name, seen string, args ...any) Check {
	return Check{Name: name, Verdict: OK, Seen: fmt.Sprintf(seen, args...)}
}

func warn(name, do, seen string, args ...any) Check {
	return Check{Name: name, Verdict: Warning, Seen: fmt.Sprintf(seen, args...), Do: do}
}

func fail(name, do, seen string, args ...any) Check {
	return Check{Name: name, Verdict: Failure, Seen: fmt.Sprintf(seen, args...), Do: do}
}

// plural counts things whose name takes an s.
func plural(n int, one string) string { return fmt.Sprintf("%d %s", n, english.PluralWord(n, one, "")) }

// distinct is a sorted list without repeats and empty texts.
func distinct(list []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	slices.Sort(list)
	return slices.Compact(list)
}
