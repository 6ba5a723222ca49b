package main

import (
	"io"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/cli"
)

// TestEveryCommandThatWaitsHasATimeout checks that every command that waits for a gateway
// or etcd has a --timeout. The other commands run until they are stopped, or call only
// processes that they have started.
func TestEveryCommandThatWaitsHasATimeout(t *testing.T) {
	without := map[string]bool{
		"berth dev": true, "berth demo": true, "berth registry": true, "berth executor-state": true, "berth assigner": true,
		"berth gateway": true, "berth agent": true, "berth sim": true, "berth etcd": true,
		"berth bench failover": true, "berth bench docs": true, "berth version": true, "berth certs init": true,
		"berth certs issue": true, "berth config": true, "berth config use": true, "berth config set": true,
		"berth config list": true, "berth config delete": true,
	}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		path := cmd.CommandPath()
		if !cmd.Runnable() || without[path] {
			delete(without, path)
			return
		}
		flag := cmd.Flag("timeout")
		if flag == nil {
			t.Errorf("%s has no --timeout", path)
		} else if d, err := time.ParseDuration(flag.DefValue); err != nil || d <= 0 {
			t.Errorf("%s waits %s by default", path, flag.DefValue)
		}
	}
	look(newRoot(cli.Streams{Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }, Now: time.Now}))
	for path := range without {
		t.Errorf("unknown command %s", path)
	}
}
