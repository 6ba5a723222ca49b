package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/cmd/berth/audit"
)

// Report is the result of a run.
type Report struct {
	Seed     uint64
	Duration time.Duration
	Faults   []Applied
	// Calls is the number of calls by verb. Unknown is the number of calls by verb that
	// had no definite outcome within their deadline.
	Calls, Unknown map[verb]int
	// Longest is the duration of the longest call. LongestCall describes that call.
	Longest     time.Duration
	LongestCall string
	// Terms are the terms at the end, by service.
	Terms map[string]int64
	// Started is the number of worker processes. Events is the number of events in etcd.
	// Streamed is the number of events that the streams delivered.
	Started, Events, Streamed int
	// Lifetimes is set if the clients used lifetimes and restarts. Restarted is the number of
	// workers that were restarted or replaced. Expired is the number of versions that expired.
	// Bound is the number of held versions that were bound.
	Lifetimes                 bool
	Restarted, Expired, Bound int
	// Volumes is the number of volumes to which workers wrote.
	Volumes int
	Audited audit.Stats
	// Gap is the longest time without an acknowledged change, and GapAt is the time at which
	// it began. GrantGap is the longest time without a grant.
	Gap, GapAt, GrantGap time.Duration
	// Failovers are how long a batch waited for its executor when the leader of a service
	// was killed without other faults, by service.
	Failovers map[string][]time.Duration
	// Partitioned is how long a member of etcd was cut from the others, PartedAcks the number of
	// changes that were acknowledged meanwhile.
	Partitioned   time.Duration
	PartitionAcks int
	// Rest is the time until everything was at rest.
	Rest time.Duration
	// Keys is the number of keys that were checked. Open is the number of keys whose
	// check took too long.
	Keys, Open int
	// Violations describes each broken promise.
	Violations []string
}

func (r *Report) addViolation(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

func (r *Report) addCheck(found []string, keys, open int) {
	r.addViolations(found)
	r.Keys += keys
	r.Open += open
}

func (r *Report) addViolations(found []string) { r.Violations = append(r.Violations, found...) }

// String returns the report without the violations.
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
	fmt.Fprintf(&b, "  calls       %d upserts, %d cancels and %d gets, of which %d, %d and %d had no definite answer within %v; the longest took %v\n",
		r.Calls[upsert], r.Calls[cancel], r.Calls[get], r.Unknown[upsert], r.Unknown[cancel], r.Unknown[get], deadline,
		r.Longest.Round(time.Millisecond))
	fmt.Fprintf(&b, "  checked     %d keys, %d left open after %v each\n", r.Keys, r.Open, checkTimeout)
	fmt.Fprintf(&b, "  etcd        %d revisions, %d versions, %d leases, %d workers ran, %d events, %d streamed\n",
		r.Audited.Revision, r.Audited.Reservations, r.Audited.LeasesGranted, r.Audited.WorkersRunning, r.Events, r.Streamed)
	fmt.Fprintf(&b, "  processes   %d workers, each started once; %d were restarted, %d reservations expired, %d were bound; %d volumes\n",
		r.Started, r.Restarted, r.Expired, r.Bound, r.Volumes)
	fmt.Fprintf(&b, "  recovery    at most %v without an acknowledged change (%s), ", r.Gap.Round(time.Millisecond),
		r.during(r.GapAt, r.GapAt+r.Gap))
	if done[StepClock] == 0 { // the times of grants depend on clocks
		fmt.Fprintf(&b, "%v without a grant, ", r.GrantGap.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "%v until nothing was in flight\n", r.Rest.Round(time.Millisecond))
	if len(r.Failovers) > 0 {
		var waits []string
		for _, service := range services {
			waits = append(waits, fmt.Sprintf("%s %v", service, rounded(r.Failovers[service])))
		}
		fmt.Fprintf(&b, "  failover    %s until a batch had its executor after only the leader was killed\n",
			strings.Join(waits, ", "))
	}
	fmt.Fprintf(&b, "  members     %d changes were acknowledged in the %v in which etcd was partitioned\n", r.PartitionAcks,
		r.Partitioned.Round(time.Millisecond))
	fmt.Fprintf(&b, "  violations  %d", len(r.Violations))
	return b.String()
}

// rounded returns rounded durations.
func rounded(times []time.Duration) []time.Duration {
	var short []time.Duration
	for _, t := range times {
		short = append(short, t.Round(time.Millisecond))
	}
	return short
}

// during returns the faults that overlap an interval.
func (r *Report) during(from, to time.Duration) string {
	var names []string
	for _, f := range r.Faults {
		if f.Skipped == "" && f.Begun < to && f.Ended > from {
			names = append(names, strings.TrimSpace(fmt.Sprintf("%s %s", f.Kind, f.Victim)))
		}
	}
	return fmt.Sprintf("at %v, with %s", from.Round(time.Millisecond), strings.Join(names, "; "))
}
