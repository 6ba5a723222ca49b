package replay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/cmd/berth/audit"
	"berth.dev/cmd/berth/internal/cluster"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// flags are the flags of the command.
type flags struct {
	nodes, limit, concurrency int
	speedup                   float64
	settle                    time.Duration
	report, prefix            string
	running.Cluster
}

const (
	readyTimeout = 5 * time.Minute
	stopTimeout  = 30 * time.Second
)

const help = `Replay a trace of real batches against a Berth cluster and audit the history.

DIR has nodes.csv and instances.csv. Every node becomes a simulated executor in
this process, with the node's cpu and gpu and 1,000 slots. The instances of one
app_name (job) and role (stage) that were created in the same second form one
batch, a gang. Each worker of a batch requests the largest cpu_request and the
largest gpu_request of the batch. Instances without a creation time existed
before the trace began and form batch "0". The replay cancels a batch when the
last of its instances is deleted. It does not cancel single workers, so a batch
keeps its executors longer than in the trace. The workers run until the cancel.

By default the command starts a cluster in this process and removes it at the
end. To use a running cluster, set --gateway, --agents-gateway and
--etcd-endpoints. The command then cancels all batches at the end. To replay
again within ten minutes, choose another --prefix, because the running cluster
remembers the worker numbers of the batches for that time.

The command audits every revision of etcd: used <= capacity, all or none, no
worker started twice, order. It fails if there is a violation.`

// Command returns `berth replay`.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:     "replay DIR",
		Short:   "Replay a trace of real batches and audit the history",
		Long:    help,
		Example: "  berth replay trace --limit 1000 --settle 2s",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.IntVar(&f.nodes, "nodes", 0, "use only the first N nodes; 0 uses all")
	set.IntVar(&f.limit, "limit", 0, "play only the first N batches; 0 plays all")
	set.Float64Var(&f.speedup, "speedup", 0, "seconds of the trace per second; 0 is as fast as possible")
	set.IntVar(&f.concurrency, "concurrency", 64, "maximum number of concurrent calls")
	set.DurationVar(&f.settle, "settle", 10*time.Second,
		"time without a change after which the replay ends even if batches are pending")
	set.StringVar(&f.report, "report", "", "file to write the summary to, as JSON")
	set.StringVar(&f.prefix, "prefix", "", "prefix of the name of every job")
	f.Flags(set)
	return cmd
}

func (f *flags) check() error {
	switch {
	case f.nodes < 0:
		return fault.BadField(fault.ReasonInvalid, "--nodes", "must be at least 0, got %d", f.nodes)
	case f.limit < 0:
		return fault.BadField(fault.ReasonInvalid, "--limit", "must be at least 0, got %d", f.limit)
	case f.speedup < 0:
		return fault.BadField(fault.ReasonInvalid, "--speedup", "must be at least 0, got %g", f.speedup)
	case f.concurrency < 1:
		return fault.BadField(fault.ReasonInvalid, "--concurrency", "must be at least 1, got %d", f.concurrency)
	}
	return f.Check()
}

func (f *flags) run(ctx context.Context, dir string, out, status io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	nodes, err := ReadNodes(dir, f.nodes)
	if err != nil {
		return err
	}
	instances, err := ReadInstances(dir)
	if err != nil {
		return err
	}
	plan := NewPlan(instances, f.prefix, f.limit)
	target := f.Cluster
	if len(f.Gateways) > 0 {
		if err := target.Reach(ctx); err != nil {
			return err
		}
	} else {
		c, err := cluster.Start(ctx, cluster.Config{Listen: "127.0.0.1:0", LogFormat: "text", LogLevel: "warn"})
		if err != nil {
			return err
		}
		defer c.Close()
		target.Gateways, target.AgentsGateways, target.Etcd = []string{c.Gateway()}, []string{c.AgentsGateway()},
			[]string{c.Etcd()}
	}
	report, err := f.replay(ctx, nodes, plan, target, status)
	if err != nil {
		return err
	}
	if err := report.Write(out); err != nil {
		return err
	}
	return cmp.Or(Save(f.report, report), Broken(report.ViolationCount))
}

// Broken returns an error unless n, the number of violations that an audit found, is 0.
func Broken(n int) error {
	if n == 0 {
		return nil
	}
	return fault.New(fault.Internal, fault.ReasonInternal, "the audit found %d violations", n)
}

// replay registers the nodes as executors of a cluster and runs the plan. If the cluster
// was already running, replay cancels the jobs at the end.
func (f *flags) replay(ctx context.Context, nodes []Node, plan *Plan, target running.Cluster,
	status io.Writer) (*Report, error) {
	c, err := client.Dial(target.Gateways)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	etcd, err := store.Dial(store.DialConfig{Endpoints: target.Etcd})
	if err != nil {
		return nil, err
	}
	defer etcd.Close()

	auditing, stopAuditing := context.WithCancel(ctx)
	var auditors sync.WaitGroup
	defer auditors.Wait()
	defer stopAuditing()
	auditor := audit.Follow(etcd, keyspace.New(target.Name))
	auditors.Go(func() { auditor.Run(auditing) })

	fmt.Fprintf(status, "registering %d executors with %s\n", len(nodes), strings.Join(target.AgentsGateways, ","))
	h, err := simulate(ctx, nodes, target.AgentsGateways)
	if err != nil {
		return nil, err
	}
	defer h.Close(true, stopTimeout)
	if err := running.AwaitReady(ctx, c, "", len(nodes), readyTimeout); err != nil {
		return nil, err
	}

	b := newBar(status)
	report, err := Run(ctx, c, auditor, plan, Options{
		Speedup: f.speedup, Concurrency: f.concurrency, Settle: f.settle,
		Progress: func(p Progress) { b.show(p, time.Now()) },
	})
	b.end()
	if err != nil {
		return nil, err
	}
	report.Executors = len(nodes)
	if len(f.Gateways) == 0 {
		return report, nil
	}
	for _, job := range plan.Jobs() {
		if _, err := c.CancelJob(ctx, job); err != nil {
			return report, err
		}
	}
	return report, nil
}

// simulate runs an agent for every node.
func simulate(ctx context.Context, nodes []Node, agentsGateways []string) (*host.Host, error) {
	log, err := process.NewLogger(os.Stderr, "text", "error")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := host.Open(ctx, listener, agentsGateways, &process.Secured{}, nil, log)
	for _, n := range nodes {
		config := agent.Config{ID: "node-" + n.Name, SKU: n.Model, Host: n.Name, Resources: n.Resources,
			Driver: agent.Simulated{}}
		if _, err := h.Add(config); err != nil {
			h.Close(true, stopTimeout)
			return nil, err
		}
	}
	return h, nil
}
