package process_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"berth.dev/pkg/process"
)

// A process tells the service manager when it serves and when it stops.
func TestServiceManagerIsNotified(t *testing.T) {
	process.NotifyReady(quiet) // without a service manager
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	receive := func() string {
		var message [64]byte
		n, err := manager.Read(message[:])
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	ctx, stop := context.WithCancel(t.Context())
	cmd := process.Command("registry", "", struct{}{}, func(ctx context.Context, _ struct{}) error {
		process.NotifyReady(quiet)
		if got := receive(); got != "READY=1" {
			t.Errorf("after the start: %q", got)
		}
		stop()
		<-ctx.Done()
		return nil
	})
	cmd.SetArgs([]string{})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if got := receive(); got != "STOPPING=1" {
		t.Errorf("after the stop: %q", got)
	}
}
