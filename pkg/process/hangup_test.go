package process_test

import (
	"context"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"berth.dev/pkg/process"
	"berth.dev/pkg/reload"
)

func hangUp(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// SIGHUP makes the command of a daemon read its files again and continue. It ends the context of
// a command on a terminal, and further ones do not end the process.
func TestSIGHUP(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("this process was started with SIGHUP ignored, as nohup does")
	}
	read := make(chan struct{}, 10)
	defer reload.OnNow(func() { read <- struct{}{} })()
	t.Cleanup(func() { signal.Reset(syscall.SIGHUP) })
	ctx, stop := process.SignalContext(t.Context())
	defer stop()

	daemon := process.Command("registry", "", struct{}{}, func(ctx context.Context, _ struct{}) error {
		for range 2 {
			hangUp(t)
			<-read
		}
		return ctx.Err()
	})
	daemon.SetArgs([]string{})
	if err := daemon.ExecuteContext(ctx); err != nil {
		t.Fatalf("the daemon has ended: %v", err)
	}

	dev := process.Command("dev", "", struct{}{}, func(ctx context.Context, _ struct{}) error {
		hangUp(t)
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Error("the context did not end")
		}
		hangUp(t)
		return nil
	})
	dev.SetArgs([]string{})
	process.StopOnHangup(dev)
	if err := dev.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if len(read) != 0 {
		t.Error("a command on a terminal has read its files again")
	}
}
