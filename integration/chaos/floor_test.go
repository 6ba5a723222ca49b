package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/cmd/berth/audit"
	"berth.dev/pkg/model"
)

// fair returns the report of a long run in which every count reaches its floor.
func fair() *Report {
	return &Report{
		Duration: longRun,
		Faults: []Applied{{Fault: Fault{Kind: Kill}}, {Fault: Fault{Kind: Kill}, Skipped: "etcd has no leader"},
			{Fault: Fault{Kind: Compact}}},
		Calls:   map[verb]int{upsert: 40, cancel: 20, get: many},
		Unknown: map[verb]int{upsert: 20, get: many / 2},
		Longest: deadline + grace,
		Keys:    100, Open: 1,
		Terms:   map[string]int64{model.ServiceRegistry: 7, model.ServiceExecutorState: 8, model.ServiceAssigner: 9},
		Audited: audit.Stats{Reservations: 1, LeasesGranted: 1, WorkersRunning: 1},
		Started: 1, Events: 1, Streamed: 1, Lifetimes: true, Restarted: 1, Expired: 1, Bound: 1, Volumes: 1,
		Partitioned: longPartition, PartitionAcks: 1,
		Failovers: map[string][]time.Duration{
			model.ServiceRegistry:      {fastFailover / 8},
			model.ServiceExecutorState: append(slices.Repeat([]time.Duration{fastFailover}, attempts-1), fastFailover-1),
			model.ServiceAssigner:      slices.Repeat([]time.Duration{fastFailover}, attempts-1),
		},
	}
}

// Each floor distinguishes a run that does too little from a run that does just enough.
func TestFloors(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Report)
		want  string // empty if the run does enough
	}{
		{"enough", func(*Report) {}, ""},
		{"few calls, most without a definite answer", func(r *Report) { r.Calls[get], r.Unknown[get] = many-1, many-2 }, ""},
		{"a verb that is never answered", func(r *Report) { r.Calls[get], r.Unknown[get] = 14, 14 },
			"no get was answered, of 14 calls"},
		{"a verb whose only call is never answered", func(r *Report) { r.Calls[cancel], r.Unknown[cancel] = 1, 1 },
			"no cancel was answered, of 1 calls"},
		{"a verb that is never called", func(r *Report) { r.Calls[upsert], r.Unknown[upsert] = 0, 0 },
			"no upsert was answered, of 0 calls"},
		{"a verb that is rarely answered", func(r *Report) { r.Unknown[get]++ },
			"most get calls had no definite answer: 6 of 10"},
		{"a call that outlasts its deadline", func(r *Report) { r.Longest++ }, "its deadline is"},
		{"failovers by the TTL", func(r *Report) { r.Failovers[model.ServiceExecutorState][attempts-1]++ },
			"no leader of executor-state that was killed alone"},
		{"one more attempt without a fast failover",
			func(r *Report) { r.Failovers[model.ServiceAssigner] = append(r.Failovers[model.ServiceAssigner], ttl) },
			"no leader of assigner that was killed alone"},
		{"no restarts", func(r *Report) { r.Restarted = 0 }, "no worker was restarted"},
		{"no volumes", func(r *Report) { r.Volumes = 0 }, "no worker wrote to a volume"},
		{"no expiry", func(r *Report) { r.Expired = 0 }, "no reservation expired"},
		{"no bind", func(r *Report) { r.Bound = 0 }, "no held reservation was bound"},
		{"an older version without lifetimes", func(r *Report) {
			r.Lifetimes, r.Restarted, r.Expired, r.Bound, r.Volumes = false, 0, 0, 0, 0
		}, ""},
		{"no takeovers", func(r *Report) { r.Failovers = nil }, ""},
		{"keys that were not checked", func(r *Report) { r.Open++ }, "2 of 100 keys took more than"},
		{"one of few keys", func(r *Report) { r.Keys-- }, "1 of 99 keys took more than"},
		{"a service without leader", func(r *Report) { delete(r.Terms, model.ServiceAssigner) }, "assigner has no leader"},
		{"no versions", func(r *Report) { r.Audited.Reservations = 0 }, "no version was accepted"},
		{"no leases", func(r *Report) { r.Audited.LeasesGranted = 0 }, "no lease was granted"},
		{"no workers", func(r *Report) { r.Audited.WorkersRunning = 0 }, "no worker ran"},
		{"no processes", func(r *Report) { r.Started = 0 }, "no worker ran on an agent"},
		{"no events", func(r *Report) { r.Events = 0 }, "no event is stored in etcd"},
		{"no streams", func(r *Report) { r.Streamed = 0 }, "no event was delivered by a stream"},
		{"no changes while etcd is partitioned", func(r *Report) { r.PartitionAcks = 0 }, "nothing was acknowledged in the 30s"},
		{"no changes in a shorter partition", func(r *Report) { r.Partitioned--; r.PartitionAcks = 0 }, ""},
		{"no faults", func(r *Report) { r.Faults = nil }, "no fault was injected"},
		{"only faults without victims in a short run", func(r *Report) {
			r.Duration, r.Faults = longRun/10,
				r.Faults[1:2]
		}, "no fault was injected"},
		{"a kind without victims", func(r *Report) { r.Faults[2].Skipped = "it is away" },
			"no compact was injected: it is away"},
		{"a kind without victims in a short run", func(r *Report) { r.Duration--; r.Faults[2].Skipped = "it is away" }, ""},
	} {
		r := fair()
		c.spoil(r)
		found := r.floors()
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.name, found, c.want)
		}
	}
}

// An empty report misses every floor.
func TestEmptyRunMissesFloors(t *testing.T) {
	if found := (&Report{}).floors(); len(found) != 3+len(services)+6+1 {
		t.Errorf("%d floors were missed: %q", len(found), slices.Sorted(slices.Values(found)))
	}
}

// Every copy of a worker counts, including the copy in the records.
func TestUnmatchedProcesses(t *testing.T) {
	const one, other = "job/stage/0.1@7 on host-0", "job/stage/1.1@7 on host-1"
	for _, c := range []struct {
		name           string
		recorded, real []string
		right          bool
	}{
		{"nobody", nil, nil, true},
		{"each worker once, in any order", []string{one, other}, []string{other, one}, true},
		{"a recorded worker does not run", []string{one, other}, []string{one}, false},
		{"a running worker is not recorded", []string{one}, []string{one, other}, false},
		{"a worker runs on another host", []string{one}, []string{other}, false},
		{"a worker runs twice", []string{one, other}, []string{one, other, one}, false},
		{"a worker is recorded twice", []string{one, one}, []string{one}, false},
	} {
		if got := unmatched(c.recorded, c.real); (got == "") != c.right {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if got, want := unmatched([]string{one}, []string{one, one}), one+": 1 recorded, 2 running"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
