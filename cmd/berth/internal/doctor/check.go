package doctor

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
)

// Verdict is the result of a check. Warning means that something may fail or is not as
// recommended. Failure means that something does not work. Skipped means that the options
// which the check needs are not set.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "OK"
	Warning Verdict = "WARN"
	Failure Verdict = "FAIL"
	Skipped Verdict = "SKIP"
)

// Check is the result of one check. Seen is the observation. Do suggests a fix unless the
// check is OK.
type Check struct {
	Name    string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	Do      string  `json:"do,omitempty"`
}

// Failed counts the checks that failed.
func Failed(checks []Check) int {
	return len(slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.Verdict != Failure }))
}

// Unreachable reports whether none of the gateways could be called or answered in time.
func Unreachable(f Facts) bool {
	return !slices.ContainsFunc(f.Gateways, func(g Gateway) bool { return !g.Unreachable })
}

// Evaluate returns the checks for the facts, always in the same order.
func Evaluate(f Facts) []Check {
	checks := append(gateways(f.Gateways), listeners(f.Listeners)...)
	if f.Answered {
		for _, s := range f.Services {
			checks = append(checks, leadership(s), replicas(s))
		}
		checks = append(checks, versions(f.Services), readiness(f))
		checks = append(checks, findings(f)...)
		checks = append(checks, clocks(f)...)
		checks = append(checks, etcdCluster(f))
	}
	checks = append(checks, etcd(f.Etcd, f.PlainEtcd)...)
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

// plural formats a number and a noun.
func plural(n int, one string) string { return fmt.Sprintf("%d %s", n, english.PluralWord(n, one, "")) }

// distinct returns a sorted list without duplicates and empty strings.
func distinct(list []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	slices.Sort(list)
	return slices.Compact(list)
}
