package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
)

// Place makes a site for each world.
type Place func(ctx context.Context, r *Run) (*site, error)

// site is a running Berth.
type site struct {
	gateways, agentsGateways, etcd []string
	cluster                        string
	// prefix begins the names of all jobs and executors of the world.
	prefix string
	// binary and dir are for the processes that the world adds.
	binary, dir string
	// fleet is the Berth of the site and processes its processes by kind. Both are nil
	// if the site is a running cluster.
	fleet     *fleet.Fleet
	processes map[string][]*child.Process
	close     func() error
}

// ownPrefix is the prefix of a site that no other world uses.
const ownPrefix = "b-"

// ownPlace starts a Berth for each world, every part a process of its own, with its
// data in a temporary directory below parent. The directory is deleted at the end.
func ownPlace(binary, parent string, config fleet.Config) Place {
	return func(ctx context.Context, r *Run) (*site, error) {
		dir, err := os.MkdirTemp(parent, "berth-bench-")
		if err != nil {
			return nil, err
		}
		config := config
		config.Binary, config.Dir, config.Replicas, config.Etcd, config.Seed = binary, dir, r.Replicas,
			max(1, config.Etcd, r.setup.members), r.setup.seed
		if r.Profiles != "" {
			config.Flags = map[string][]string{"": {"--pprof"}, model.ServiceGateway: {"--http-listen", "127.0.0.1:0"}}
		}
		f, err := fleet.Start(ctx, config)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		return &site{
			gateways: f.Gateways(), agentsGateways: f.AgentsGateways(), etcd: f.Etcd(), cluster: "default", prefix: ownPrefix,
			binary: binary, dir: dir,
			fleet: f, processes: f.Processes(),
			close: func() error { return errors.Join(f.Close(), os.RemoveAll(dir)) },
		}, nil
	}
}

// runningPlace returns a cluster that runs elsewhere and outlives the world.
func runningPlace(binary string, c running.Cluster) Place {
	return func(context.Context, *Run) (*site, error) {
		dir, err := os.MkdirTemp("", "berth-bench-")
		if err != nil {
			return nil, err
		}
		return &site{
			gateways: c.Gateways, agentsGateways: c.AgentsGateways, etcd: c.Etcd, cluster: c.Name,
			prefix: "bench-" + strings.ToLower(rand.Text()[:8]) + "-", binary: binary, dir: dir,
			close: func() error { return os.RemoveAll(dir) },
		}, nil
	}
}
