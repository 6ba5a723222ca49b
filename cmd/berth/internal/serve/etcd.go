package serve

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/process"
)

// etcdConfig is the configuration of an etcd server.
type etcdConfig struct {
	Dir         string   `mapstructure:"dir" form:"path" usage:"directory for the data"`
	Name        string   `mapstructure:"name" usage:"name of this member"`
	Listen      string   `mapstructure:"listen" form:"listen" usage:"address to serve clients on"`
	PeerListen  string   `mapstructure:"peer-listen" form:"listen" usage:"address to serve other members on"`
	Members     []string `mapstructure:"members" form:"member" usage:"all members, name=host:port of the address for other members; by default only this member"`
	Join        bool     `mapstructure:"join" usage:"join a running cluster, to which this member has been added"`
	Quota       int      `mapstructure:"quota" least:"0" usage:"maximum size of the database in bytes; 0 means 8 GiB"`
	TLSCert     string   `mapstructure:"tls-cert" form:"path" usage:"PEM file of the certificate for clients"`
	TLSKey      string   `mapstructure:"tls-key" form:"path" usage:"PEM file of the certificate's key"`
	TLSCA       string   `mapstructure:"tls-ca" form:"path" usage:"PEM file of the authorities of clients' certificates, which are then required"`
	AddressFile string   `mapstructure:"address-file" form:"path" usage:"file to write the bound address to, as JSON"`
}

// etcd returns the command that runs an etcd server, alone or as a member of a cluster.
// Benchmarks use the command to measure etcd's processor time separately, and tests use
// it to kill a member. The command is hidden because it is not for production.
func etcd() *cobra.Command {
	cmd := process.Command("etcd", "Run an etcd server, for benchmarks and tests", etcdConfig{Dir: "."}, runEtcd)
	cmd.Hidden = true
	process.StopOnHangup(cmd) // it has no files to read again
	return cmd
}

func runEtcd(ctx context.Context, config etcdConfig) error {
	log, err := process.NewLogger(os.Stderr, "text", "warn")
	if err != nil {
		return err
	}
	if err := process.MakeDir("--dir", config.Dir, 0o700); err != nil {
		return err
	}
	member := embedded.Alone()
	if len(config.Members) > 0 {
		member = embedded.Member{
			Name: config.Name, Listen: config.Listen, PeerListen: config.PeerListen, Members: config.Members,
			Joins: config.Join, Quota: int64(config.Quota),
		}
	}
	member.Security = embedded.Security{Cert: config.TLSCert, Key: config.TLSKey, CA: config.TLSCA}
	server, err := embedded.StartMember(ctx, config.Dir, member)
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
