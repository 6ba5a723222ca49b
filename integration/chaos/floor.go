package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// many is the number of calls of a verb from which floors checks the share of answered
	// calls. Even on a slow machine, all but a few percent of the calls are answered.
	many = 10
	// grace is the time that a call may take beyond its deadline, because the client needs
	// processor time to detect the deadline.
	grace = 5 * time.Second
	// longRun is the duration from which a run injects every kind of fault of its schedule
	// several times.
	longRun = 5 * time.Minute
	// longPartition is the duration of etcd partitions, in all faults together, from which
	// acknowledged changes are required in it.
	longPartition = 30 * time.Second
)

// floors returns the reasons why a run proves nothing. For example, without answers and
// workers no rule can be broken.
func (r *Report) floors() []string {
	var found []string
	short := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	for _, v := range []verb{upsert, cancel, get} {
		switch calls, unknown := r.Calls[v], r.Unknown[v]; {
		case unknown >= calls:
			short("no %s was answered, of %d calls", v, calls)
		case calls >= many && 2*unknown > calls:
			short("most %s calls had no definite answer: %d of %d", v, unknown, calls)
		}
	}
	if r.Longest > deadline+grace {
		short("a call took %v, its deadline is %v: %s", r.Longest.Round(time.Millisecond), deadline, r.LongestCall)
	}
	for _, service := range services {
		if waits := r.Failovers[service]; len(waits) >= attempts && slices.Min(waits) >= fastFailover {
			short("no leader of %s that was killed alone was replaced before its TTL of %v: callers waited %v",
				service, ttl, rounded(waits))
		}
	}
	if 100*r.Open > r.Keys {
		short("%d of %d keys took more than %v to check", r.Open, r.Keys, checkTimeout)
	}
	for _, service := range services {
		if r.Terms[service] == 0 {
			short("%s has no leader", service)
		}
	}
	for _, c := range []struct {
		what string
		n    int
	}{
		{"version was accepted", r.Audited.Reservations},
		{"lease was granted", r.Audited.LeasesGranted},
		{"worker ran", r.Audited.WorkersRunning},
		{"worker ran on an agent", r.Started},
		{"event is stored in etcd", r.Events},
		{"event was delivered by a stream", r.Streamed},
	} {
		if c.n == 0 {
			short("no %s", c.what)
		}
	}
	if r.Lifetimes && r.Restarted == 0 {
		short("no worker was restarted")
	}
	if r.Lifetimes && r.Volumes == 0 {
		short("no worker wrote to a volume")
	}
	if r.Lifetimes && r.Expired == 0 {
		short("no reservation expired")
	}
	if r.Lifetimes && r.Bound == 0 {
		short("no held reservation was bound")
	}
	if r.Partitioned >= longPartition && r.PartitionAcks == 0 {
		short("nothing was acknowledged in the %v in which one etcd member was partitioned, although two of three suffice",
			r.Partitioned)
	}
	return append(found, r.notInjected()...)
}

// notInjected returns the kinds of faults that were planned and never happened, each with the
// reason. A short run must have at least one fault.
func (r *Report) notInjected() []string {
	applied, skipped := map[Kind]bool{}, map[Kind][]string{}
	for _, f := range r.Faults {
		if f.Skipped == "" {
			applied[f.Kind] = true
		} else {
			skipped[f.Kind] = append(skipped[f.Kind], f.Skipped)
		}
	}
	if len(applied) == 0 {
		return []string{"no fault was injected"}
	}
	if r.Duration < longRun {
		return nil
	}
	var found []string
	for _, kind := range slices.Sorted(maps.Keys(skipped)) {
		if !applied[kind] {
			slices.Sort(skipped[kind])
			found = append(found, fmt.Sprintf("no %s was injected: %s", kind, strings.Join(slices.Compact(skipped[kind]), "; ")))
		}
	}
	return found
}
