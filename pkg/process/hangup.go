package process

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"berth.dev/pkg/reload"
)

// stopsOnHangup is the annotation of a command that SIGHUP stops.
const stopsOnHangup = "berth.dev/stops-on-hangup"

// daemons is the number of running commands for which SIGHUP reads files again.
var daemons atomic.Int32

// StopOnHangup makes SIGHUP stop a command of Command in order, for a command that its user runs
// on a terminal.
func StopOnHangup(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[stopsOnHangup] = "true"
}

// HangupContext returns a context that ends at the first SIGHUP: the terminal of the process was
// closed. Further ones have no effect, because a terminal and its shell both send it. A process
// that was started with SIGHUP ignored (nohup) continues to ignore it. While a command of Command
// runs, SIGHUP is a call of reload.Now instead, except for commands of StopOnHangup. The caller
// must call the result.
func HangupContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(parent)
	ignored := signal.Ignored(syscall.SIGHUP)
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-hangups:
			case <-ended:
				return
			}
			switch {
			case daemons.Load() > 0:
				reload.Now()
			case !ignored:
				// The reader of a pipe for the output gets the signal, too. Neither writing to the pipe
				// nor a further SIGHUP, however late it arrives, may end the process before it has
				// stopped in order.
				signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
				stop()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(hangups)
		stop()
		close(ended)
	}
}
