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
	gateways, etcd []string
	// agentsGateways are where agents call the gateways.
	agentsGateways []string
	cluster        string
	// prefix begins the names of jobs and executors, so that the world's are told
	// from all others.
	prefix string
	// binary and dir are for the children that the world adds.
	binary, dir string
	// fleet is the Berth of the site and processes its processes by kind; nil if the
	// site is a running cluster.
	fleet     *fleet.Fleet
	processes map[string][]*child.Process
	// passing says that the site ends with the world.
	passing bool
	close   func() error
}

// ownPrefix is the prefix of a site that is the world's alone.
const ownPrefix = "b-"

// ownPlace starts a Berth for each world, every part a process of its own, with
// its data in a directory below parent; the directory for temporary files if that is
// empty. It calls configure before the start and keep after the end, before it
// deletes the directory.
func ownPlace(binary, parent string, keep func(dir string) error, configure func(*fleet.Config) error) Place {
	return func(ctx context.Context, r *Run) (*site, error) {
		dir, err := os.MkdirTemp(parent, "berth-bench-")
		if err != nil {
			return nil, err
		}
		config := fleet.Config{Binary: binary, Dir: dir, Replicas: r.Replicas, LogLevel: "warn", Etcd: max(1, r.setup.members), Seed: r.setup.seed}
		if r.Profiles != "" {
			config.Flags = map[string][]string{"": {"--pprof"}, model.ServiceGateway: {"--http-listen", "127.0.0.1:0"}}
		}
		end := func() error { return errors.Join(keep(dir), os.RemoveAll(dir)) }
		if err := configure(&config); err != nil {
			return nil, errors.Join(err, end())
		}
		f, err := fleet.Start(ctx, config)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return &site{
			gateways: f.Gateways(), agentsGateways: f.AgentsGateways(), etcd: f.Etcd(), cluster: "default", prefix: ownPrefix, binary: binary, dir: dir,
			fleet: f, processes: f.Processes(), passing: true,
			close: func() error { return errors.Join(f.Close(), end()) },
		}, nil
	}
}

// runningPlace is a cluster that runs elsewhere and goes on when the world ends.
func runningPlace(binary string, c running.Cluster) Place {
	return func(context.Context, *Run) (*site, error) {
		dir, err := os.MkdirTemp("", "berth-bench-")
		if err != nil {
			return nil, err
		}
		return &site{
			gateways: c.Gateways, agentsGateways: c.AgentsGateways, etcd: c.Etcd, cluster: c.Name, prefix: "bench-" + strings.ToLower(rand.Text()[:8]) + "-", binary: binary, dir: dir,
			close: func() error { return os.RemoveAll(dir) },
		}, nil
	}
}
