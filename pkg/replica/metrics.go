package replica

import (
	"context"
	"strings"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// metricsTimeout is the maximum time that a scrape waits for the loop.
const metricsTimeout = 2 * time.Second

// showStatus emits the metrics that every service has. A standby emits only that it does
// not lead.
func (r *Replica) showStatus(f process.Scrape, s loop.Status) {
	leads := 0.0
	if s.Serving {
		leads = 1
	}
	f.Gauge("berth_leader", "1 if the replica is the serving leader of its service, otherwise 0.", leads,
		"service", r.Service, "replica", r.ID)
	if !s.Serving {
		return
	}
	f.Gauge("berth_events_kept", "job events in etcd, of all services", float64(s.Events))
	f.Gauge("berth_events_kept_bytes", "bytes of keys and values of the job events in etcd", float64(s.EventBytes))
	ShowFindings(f, r.Service, map[string]int{
		loop.FindingPoison: len(s.Quarantined), loop.FindingPeerPanic: len(s.Panics),
	})
}

// CountFindings returns the number of findings by kind; 0 for the kinds without findings.
func CountFindings[F ~Found](kinds []string, found []F) map[string]int {
	counts := make(map[string]int, len(kinds))
	for _, kind := range kinds {
		counts[kind] = 0
	}
	for _, f := range found {
		counts[Found(f).Kind]++
	}
	return counts
}

// ShowFindings emits the number of findings of a service by kind.
func ShowFindings(f process.Scrape, service string, counts map[string]int) {
	name := "berth_" + strings.ReplaceAll(service, "-", "_") + "_findings"
	for kind, n := range counts {
		f.Gauge(name, "Current findings by kind.", float64(n), "kind", kind)
	}
}

// CollectMetrics adds the metrics of the leader's core to each scrape. It calls snapshot
// on the goroutine of the loop, so snapshot must be fast. It calls show on the goroutine
// of the scrape. A replica that does not lead shows no metrics, so that only one replica
// reports the metrics of a service.
func CollectMetrics[C model.Core, S any](r *Replica, l *loop.Loop[C], snapshot func(C) S,
	show func(process.Scrape, S)) {
	r.Metrics.Collect(func(f process.Scrape) {
		ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
		defer cancel()
		var s S
		if err := l.Read(ctx, false, func(core C) { s = snapshot(core) }); err == nil {
			show(f, s)
		}
	})
}
