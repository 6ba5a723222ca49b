package internal

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// maxGroups bounds the queues with metrics of their own: the largest queues have them.
// All other queues are summed under otherGroups. So the number of series does not grow
// with the number of different constraints.
const (
	maxGroups   = 100
	otherGroups = "other"
)

// Snapshot has the values of the registry's metrics.
type Snapshot struct {
	stats    queue.Stats
	findings map[string]int
}

// TakeSnapshot returns the current values of a core. It must be called on the goroutine
// that owns the core.
func TakeSnapshot(c *queue.Core) Snapshot {
	return Snapshot{c.Stats(), replica.CountFindings(queue.FindingKinds, c.Findings(time.Now()))}
}

// ShowMetrics emits the metrics of a snapshot. Labels are words of the code and IDs of
// groups, never names that users choose.
func (s *Reservations) ShowMetrics(f process.Scrape, snapshot Snapshot) {
	showState(f, snapshot.stats, time.Now())
	showCounts(f, snapshot.stats.Counts)
	replica.ShowFindings(f, model.ServiceRegistry, snapshot.findings)
	refused := s.refused.all()
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		f.Counter("berth_registry_upserts_refused_total", "Upserts that this replica rejected, by reason.", refused[reason],
			"reason", string(reason))
	}
}

func showState(f process.Scrape, stats queue.Stats, now time.Time) {
	ready := 0.0
	if stats.Ready {
		ready = 1
	}
	f.Gauge("berth_registry_ready", "Whether the registry is ready; nothing is leased before.", ready)
	for state, n := range stats.States {
		if state := model.State(state); state == model.Queued || state >= model.Active {
			f.Gauge("berth_registry_reservations", "Reservations by stored state, including ended ones while they are kept.",
				float64(n), "state", state.String())
		}
	}
	f.Gauge("berth_registry_leased_reservations", "Reservations with a lease that are not dispatched.",
		float64(stats.Leased))
	if !stats.Ready {
		stats.Groups = nil // an autoscaler must not take a part of the demand for all of it
	}
	f.Gauge("berth_registry_held_reservations", "Reservations that hold executors until they are bound.", float64(stats.Held))
	f.Gauge("berth_registry_queues", "Non-empty queues.", float64(len(stats.Groups)))
	for _, g := range largest(stats.Groups) {
		f.Gauge("berth_registry_queue_reservations", "Pending reservations in a queue.", float64(g.Reservations), "group",
			g.ID)
		f.Gauge("berth_registry_queue_workers", "Workers of the pending reservations in a queue.", float64(g.Workers),
			"group", g.ID)
		f.Gauge("berth_registry_queue_head_age_seconds", "Time that the head of a queue has waited.",
			now.Sub(g.HeadSince).Seconds(), "group", g.ID)
	}
}

// largest returns the queues with the most workers. If there are more than maxGroups
// queues, the last one is the sum of all other queues, and its HeadSince is that of their
// oldest head.
func largest(groups []queue.GroupStats) []queue.GroupStats {
	slices.SortFunc(groups, func(a, b queue.GroupStats) int {
		return cmp.Or(-cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.ID, b.ID))
	})
	if len(groups) <= maxGroups {
		return groups
	}
	other := queue.GroupStats{ID: otherGroups, HeadSince: groups[maxGroups].HeadSince}
	for _, g := range groups[maxGroups:] {
		other.Reservations += g.Reservations
		other.Workers += g.Workers
		if g.HeadSince.Before(other.HeadSince) {
			other.HeadSince = g.HeadSince
		}
	}
	return append(groups[:maxGroups:maxGroups], other)
}

func showCounts(f process.Scrape, counts queue.Counts) {
	f.Histogram("berth_registry_time_in_queue_duration_seconds", "From the creation of a reservation to its lease.",
		&counts.TimeInQueue)
	for change := model.Created; change <= model.Updated; change++ {
		if change == model.Bound {
			continue
		}
		f.Counter("berth_registry_upserts_total", "Upserts answered, by change.", counts.Upserts[change], "change",
			change.String())
	}
	f.Counter("berth_registry_expired_total", "Reservations that expired, by their state.", counts.ExpiredQueued, "state",
		model.Queued.String())
	f.Counter("berth_registry_expired_total", "Reservations that expired, by their state.", counts.ExpiredActive, "state",
		model.Active.String())
	for _, reason := range slices.Sorted(maps.Keys(counts.Restarts)) {
		f.Counter("berth_registry_restarts_total", "Workers queued again by reservations that restart or replace workers, by how they ended.",
			counts.Restarts[reason], "reason", string(reason))
	}
	for kind, n := range counts.Events {
		if name, ok := berthv1.Event_Kind_name[int32(kind)]; ok && kind != 0 {
			f.Counter("berth_registry_events_total", "Events of reservations, by kind.", n, "event", name)
		}
	}
	f.Counter("berth_registry_cycles_total", "Scheduling cycles sent to executor-state.", counts.Cycles)
	for result := model.Granted; result <= model.Later; result++ {
		f.Counter("berth_registry_candidates_total", "Candidates in scheduling cycles, by outcome.",
			counts.Candidates[result], "outcome", result.String())
	}
	for cause, n := range counts.WakeUps {
		f.Counter("berth_registry_wakeups_total", "Scheduling cycles by trigger; a cycle may have several triggers.", n,
			"cause", scheduler.WakeCause(cause).String())
	}
	f.Counter("berth_registry_dispatches_total", "Dispatched leases, by the answer of the assigner.", counts.Taken,
		"outcome", "accepted")
	f.Counter("berth_registry_dispatches_total", "Dispatched leases, by the answer of the assigner.", counts.Refused,
		"outcome", "rejected")
}

// refusals counts rejected upserts by reason, including upserts that the server rejects
// before the core.
type refusals struct {
	mu       sync.Mutex
	byReason map[fault.Reason]uint64
}

// count counts a definite error. It does not count an error that leaves the outcome open
// or names the leader.
func (r *refusals) count(err error) {
	if err == nil {
		return
	}
	f := fault.Of(err)
	if f.Kind == fault.Unavailable || f.Reason == fault.ReasonNotLeader {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byReason == nil {
		r.byReason = map[fault.Reason]uint64{}
	}
	r.byReason[f.Reason]++
}

func (r *refusals) all() map[fault.Reason]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.byReason)
}
