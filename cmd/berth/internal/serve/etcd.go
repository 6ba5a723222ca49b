package serve

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/process"
)

// etcdConfig is the configuration of a process of etcd alone.
type etcdConfig struct {
	Dir         string `mapstructure:"dir" usage:"directory that keeps its data; it must exist"`
	AddressFile string `mapstructure:"address-file" usage:"file to write the bound address to, as JSON"`
}

// etcd is the command that runs one etcd server on loopback. It is how the
// benchmarks tell etcd's processor time from their own, and hidden because it is
// no way to run an etcd that matters.
func etcd() *cobra.Command {
	cmd := process.Command("etcd", "Run one etcd server on loopback, for benchmarks", etcdConfig{Dir: "."}, runEtcd)
	cmd.Hidden = true
	return cmd
}

func runEtcd(ctx context.Context, config etcdConfig) error {
	log, err := process.NewLogger(os.Stderr, "text", "warn")
	if err != nil {
		return err
	}
	server, err := embedded.Start(ctx, config.Dir)
	if err != nil {
		return err
	}
	defer server.Close()
	common := process.Common{AddressFile: config.AddressFile}
	if err := common.Announce(log, &process.Listeners{Calls: server.Listener()}, nil); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
