package replica

import (
	"context"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// metricsTimeout is the maximum time that a scrape waits for the loop.
const metricsTimeout = 2 * time.Second

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
