package replica

import (
	"context"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// metricsTimeout bounds how long a reader of metrics waits for the loop.
const metricsTimeout = 2 * time.Second

// CollectMetrics shows the metrics of the leader's core. It calls snapshot on the loop,
// which must be fast, and show elsewhere. A replica that does not lead shows none, so
// that the metrics of a service are those of one replica.
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
