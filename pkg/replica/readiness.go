package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// readiness knows whether a replica is ready, and why it is not. A replica is ready while its view of
// etcd is current, also if no gateway answers it: gateways may start later.
type readiness struct {
	current func() bool                     // reports whether the view of etcd is current
	leads   func() bool                     // reports whether the replica leads, and so can use etcd
	check   func(ctx context.Context) error // says why etcd cannot be used
	etcd    string                          // the endpoints
	expired func() error                    // says that the certificate is not valid now
	cause   atomic.Pointer[string]          // result of the last check
	broken  atomic.Bool                     // the last check failed
	refused atomic.Bool                     // the last check was refused
}

// checkStandby is the time between two checks of a standby whose view is current. etcd does not end
// its watch if it refuses a new login, but the standby cannot lead.
const checkStandby = 5 * time.Second

// probe returns nil if the replica is ready, and otherwise the reason. It does not call etcd.
func (r *readiness) probe() error {
	if err := r.expired(); err != nil {
		return err
	}
	current, refused := r.current(), r.refused.Load()
	if current && !refused {
		return nil
	}
	cause := "etcd at " + r.etcd + " has not answered yet"
	if last := r.cause.Load(); last != nil {
		cause = *last
	}
	if current {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s", cause)
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the view of etcd is not current: %s", cause)
}

// lacks returns why the certificate or etcd cannot be used, or "".
func (r *readiness) lacks() string {
	if err := r.expired(); err != nil {
		return fault.Of(err).Message
	}
	if r.probe() != nil && r.broken.Load() {
		return *r.cause.Load()
	}
	return ""
}

// watch looks once a second whether the replica is ready. It logs when that or the reason changes.
// When the replica is ready for the first time, watch notifies the service manager. Before the
// first answer of etcd the replica is not ready.
func (r *readiness) watch(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	notify := sync.OnceFunc(func() { process.NotifyReady(log) })
	checked := time.Now()
	var readiness process.ReadinessLog
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !r.current() || r.refused.Load() || !r.leads() && time.Since(checked) >= checkStandby {
			cause := "the records of etcd at " + r.etcd + " are being read"
			err := r.check(ctx)
			checked = time.Now()
			if err != nil {
				cause = err.Error()
			}
			if ctx.Err() != nil {
				return nil
			}
			r.cause.Store(&cause)
			r.broken.Store(err != nil)
			r.refused.Store(errors.Is(err, store.ErrLogin) || errors.Is(err, store.ErrDenied))
		}
		reason := ""
		if err := r.probe(); err != nil {
			reason = fault.Of(err).Message
		} else {
			notify()
		}
		readiness.Set(log, reason)
	}
}
