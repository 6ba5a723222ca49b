package serve

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/process"
)

// etcdConfig is the configuration of a process of etcd.
type etcdConfig struct {
	Dir         string   `mapstructure:"dir" usage:"directory that keeps its data; it must exist"`
	Name        string   `mapstructure:"name" usage:"which of the members it is"`
	Listen      string   `mapstructure:"listen" usage:"address to serve clients on"`
	PeerListen  string   `mapstructure:"peer-listen" usage:"address to serve the other members on"`
	Members     []string `mapstructure:"members" usage:"all members, name=host:port at which the others reach it; alone unless given"`
	Join        bool     `mapstructure:"join" usage:"the other members run already, and have been told of it"`
	Quota       int      `mapstructure:"quota" usage:"bytes that the database may take, 0 for 8 GiB"`
	AddressFile string   `mapstructure:"address-file" usage:"file to write the bound address to, as JSON"`
}

// etcd is the command that runs an etcd server, alone or as a member of several.
// It is how benchmarks tell etcd's processor time from their own, and how tests
// kill a member. It is hidden because it is no way to run an etcd that matters.
func etcd() *cobra.Command {
	cmd := process.Command("etcd", "Run an etcd server, for benchmarks and tests", etcdConfig{Dir: "."}, runEtcd)
	cmd.Hidden = true
	return cmd
}

func runEtcd(ctx context.Context, config etcdConfig) error {
	log, err := process.NewLogger(os.Stderr, "text", "warn")
	if err != nil {
		return err
	}
	var server *embedded.Etcd
	if len(config.Members) == 0 {
		server, err = embedded.Start(ctx, config.Dir)
	} else {
		server, err = embedded.StartMember(ctx, config.Dir, embedded.Member{
			Name: config.Name, Listen: config.Listen, PeerListen: config.PeerListen, Members: config.Members, Joins: config.Join, Quota: int64(config.Quota),
		})
	}
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
