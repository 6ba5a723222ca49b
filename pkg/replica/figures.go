package replica

import (
	"context"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// figuresTimeout bounds how long a reader of metrics waits for the loop.
const figuresTimeout = 2 * time.Second

// Figures shows what the core of the leader counts. Snapshot runs on the loop
// and has to be quick; show makes figures of it elsewhere. A replica that does
// not lead shows nothing, so that the figures of a service are those of one
// replica.
func Figures[C model.Core, S any](r *Replica, l *loop.Loop[C], snapshot func(C) S, show func(process.Figures, S)) {
	r.Metrics.Collect(func(f process.Figures) {
		ctx, cancel := context.WithTimeout(context.Background(), figuresTimeout)
		defer cancel()
		var s S
		if err := l.Read(ctx, false, func(core C) { s = snapshot(core) }); err == nil {
			show(f, s)
		}
	})
}
