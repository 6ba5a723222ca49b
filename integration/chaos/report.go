package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/audit"
)

// Report is what a run did and found.
type Report struct {
	Seed     uint64
	Duration time.Duration
	Faults   []Applied
	// Calls by verb, and how many had no definite answer within their deadline.
	Calls   map[verb]int
	Unknown int
	// Started counts the processes that workers were, Events what the streams
	// gave.
	Started, Events int
	Audited         audit.Stats
	// Gap is the longest time without an acknowledged change, which began at
	// GapAt, and GrantGap the longest without a grant.
	Gap, GapAt, GrantGap time.Duration
	// Rest is how long it took until everything was at rest.
	Rest time.Duration
	// Open is how many keys took too long to judge.
	Open int
	// Violations are what must not be.
	Violations []string
}

func (r *Report) wrong(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

func (r *Report) judged(found []string, open int) {
	r.wrongs(found)
	r.Open += open
}

func (r *Report) wrongs(found []string) { r.Violations = append(r.Violations, found...) }

// String prints the report, without the violations themselves.
func (r *Report) String() string {
	var b strings.Builder
	done, skipped := map[Kind]int{}, 0
	for _, f := range r.Faults {
		if f.Skipped != "" {
			skipped++
			continue
		}
		done[f.Kind]++
	}
	fmt.Fprintf(&b, "seed %d, %v of faults\n", r.Seed, r.Duration)
	fmt.Fprintf(&b, "  faults      %d", len(r.Faults)-skipped)
	for _, kind := range slices.Sorted(maps.Keys(done)) {
		fmt.Fprintf(&b, ", %s %d", kind, done[kind])
	}
	fmt.Fprintf(&b, "; %d had no victim\n", skipped)
	total := 0
	for _, n := range r.Calls {
		total += n
	}
	fmt.Fprintf(&b, "  calls       %d (%d upserts, %d cancels, %d gets), %d without a definite answer within %v\n",
		total, r.Calls[upsert], r.Calls[cancel], r.Calls[get], r.Unknown, deadline)
	fmt.Fprintf(&b, "  etcd        %d revisions, %d versions, %d leases, %d workers ran, %d events\n",
		r.Audited.Revision, r.Audited.Reservations, r.Audited.LeasesGranted, r.Audited.WorkersRunning, r.Events)
	fmt.Fprintf(&b, "  processes   %d workers, each started once\n", r.Started)
	fmt.Fprintf(&b, "  recovery    at most %v without an acknowledged change (%s), ", r.Gap.Round(time.Millisecond), r.during(r.GapAt, r.GapAt+r.Gap))
	if done[StepClock] == 0 { // when leases were granted is told by clocks
		fmt.Fprintf(&b, "%v without a grant, ", r.GrantGap.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "%v until all was at rest\n", r.Rest.Round(time.Millisecond))
	if r.Open > 0 {
		fmt.Fprintf(&b, "  open        %d keys, whose calls took more than %v to judge\n", r.Open, judging)
	}
	fmt.Fprintf(&b, "  violations  %d", len(r.Violations))
	return b.String()
}

// during names the faults that overlap a time.
func (r *Report) during(from, to time.Duration) string {
	var names []string
	for _, f := range r.Faults {
		if f.Skipped == "" && f.Begun < to && f.Ended > from {
			names = append(names, strings.TrimSpace(fmt.Sprintf("%s %s", f.Kind, f.Victim)))
		}
	}
	return fmt.Sprintf("at %v, with %s", from.Round(time.Millisecond), strings.Join(names, "; "))
}
