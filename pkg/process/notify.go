package process

import (
	"context"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
)

// NotifyReady tells the service manager that this process serves (sd_notify). Without
// NOTIFY_SOCKET, as outside of a unit of systemd with Type=notify, it does nothing.
func NotifyReady(log *slog.Logger) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("cannot notify the service manager", "error", err)
	}
}

// ReadinessLog logs when a process ceases to be ready, is ready again, or is not for another reason. The
// zero value is of a process that is ready.
type ReadinessLog struct{ reason string }

// Set logs a change. reason is why the process is not ready, or empty if it is.
func (r *ReadinessLog) Set(log *slog.Logger, reason string) {
	switch {
	case reason == r.reason:
	case reason == "":
		log.Info("ready")
	default:
		log.Warn("not ready", "reason", reason)
	}
	r.reason = reason
}

// notifyStopping tells the service manager that this process stops, once ctx ends. The
// caller must call the result before the process exits.
func notifyStopping(ctx context.Context) (wait func()) {
	notified := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(notified)
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) // the service manager sees the exit in any case
	})
	return func() {
		if !stop() {
			<-notified
		}
	}
}
