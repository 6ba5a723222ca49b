// Package demo exits with 0 only if Berth kept its promises while the leaders of its
// services were killed. It is `berth demo`, which runs a word count job on real
// processes.
//
// The exit code is 0 only if all of the following hold:
//   - Every gang was granted as a whole.
//   - The word count is correct.
//   - No worker was started twice.
//   - No acknowledged request was lost.
//   - The audit of every revision of etcd found no violation.
package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

const (
	agents = 4
	slots  = 4
	// within is the maximum time of the demo.
	within = 3 * time.Minute
)

// Command returns `berth demo`.
func Command() *cobra.Command {
	var docs, keep string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a two-stage job on real processes while the leaders of the services are killed",
		Long: `Run embedded etcd, two replicas of each service, a gateway and four agents as separate
processes. Count the words of the documents in --docs with a two-stage job, and kill
the leader of each service (kill -9) while a larger gang is pending.

Exit code 0 means that all checks passed.`,
		Example: "  berth demo\n  berth demo --docs . --dir /tmp/demo",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&docs, "docs", ".", "directory with the *.md files to count")
	cmd.Flags().StringVar(&keep, "dir", "", "directory for data and logs (default: a temporary directory, removed at the end)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return run(cmd.Context(), cmd.OutOrStdout(), docs, keep)
	}
	return cmd
}

func run(ctx context.Context, out io.Writer, docs, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	files, words, err := documents(docs)
	if err != nil {
		return err
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "berth-demo-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	d := &demo{out: out, began: time.Now(), dir: dir, files: files, words: words, work: filepath.Join(dir, "work")}
	if err := os.MkdirAll(d.work, 0o750); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	d.say("starting etcd, 2 replicas of each of 3 services, a gateway and %d agents with %d slots each", agents, slots)
	if d.fleet, err = fleet.Start(ctx, fleet.Config{Binary: binary, Dir: d.dir}); err != nil {
		return err
	}
	defer func() {
		if closing := d.fleet.Close(); closing != nil && err == nil {
			err = closing
		}
	}()
	d.client = d.fleet.Client()
	if err := d.startAgents(ctx); err != nil {
		return err
	}
	if err := d.run(ctx); err != nil {
		return err
	}
	return d.report(ctx)
}

// demo is one run.
type demo struct {
	out   io.Writer
	began time.Time
	dir   string
	// work is the directory that the workers share.
	work  string
	files []string
	words int

	fleet  *fleet.Fleet
	client *client.Client
	// acked has the gangs whose requests were acknowledged.
	acked     []client.Key
	failovers []failover
}

// say prints a line with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.2fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// startAgents starts the agents and waits until they are ready.
func (d *demo) startAgents(ctx context.Context) error {
	for i := range agents {
		if err := d.fleet.StartAgent(ctx, fleet.Agent{ID: fmt.Sprintf("host-%d", i), Slots: slots,
			SKU: "small"}); err != nil {
			return err
		}
	}
	if err := running.AwaitReady(ctx, d.client, "", agents, within); err != nil {
		return err
	}
	d.say("all %d agents are ready; REST and gRPC: http://%s", agents, d.fleet.Gateway())
	return nil
}

// run runs the steps in order.
func (d *demo) run(ctx context.Context) error {
	if err := d.countWords(ctx); err != nil {
		return err
	}
	// Ten of sixteen slots are used, so a gang of twelve is pending.
	holder := d.gang("backlog", "holder", 10, "sleep 600")
	if err := d.reserve(ctx, holder, berthv1.Reservation_ACTIVE); err != nil {
		return err
	}
	large := d.gang("backlog", "large", 12, `echo $BERTH_WORKER_INDEX >> "$WORK/large"`)
	if _, err := d.request(ctx, large); err != nil {
		return err
	}
	if err := d.explainWait(ctx, large); err != nil {
		return err
	}
	for _, service := range fleet.Services {
		if err := d.killLeader(ctx, service); err != nil {
			return err
		}
	}
	waiting, err := d.client.Get(ctx, client.KeyOf(large))
	if err != nil {
		return err
	}
	d.say("after the death of three leaders, backlog/large is still %s at position %d, epoch %d", waiting.GetState(),
		waiting.GetPosition(), waiting.GetEpoch())
	if waiting.GetUid() != large.GetUid() {
		return fmt.Errorf("the version of backlog/large changed to %s from %s", waiting.GetUid(), large.GetUid())
	}
	freed := time.Now()
	if _, err := d.client.Cancel(ctx, client.KeyOf(holder)); err != nil {
		return err
	}
	d.say("cancelled backlog/holder to free its 10 slots")
	if _, err := d.client.WaitFor(ctx, client.KeyOf(large), berthv1.Reservation_ACTIVE,
		berthv1.Reservation_COMPLETED); err != nil {
		return err
	}
	d.say("backlog/large was granted as a whole %v after the cancel", time.Since(freed).Round(time.Millisecond))
	_, err = d.client.WaitFor(ctx, client.KeyOf(large), berthv1.Reservation_COMPLETED)
	return err
}

// countWords runs the two-stage job. In the first stage, each worker counts the words of
// one shard. The worker of the second stage adds the counts.
func (d *demo) countWords(ctx context.Context) error {
	shards := min(8, len(d.files))
	count := d.gang("words", "count", shards, countScript)
	count.Task.Env["SHARDS"] = fmt.Sprint(shards)
	d.say("words/count: %d workers count the words of %d documents, one shard each", shards, len(d.files))
	if err := d.reserve(ctx, count, berthv1.Reservation_COMPLETED); err != nil {
		return err
	}
	sum := d.gang("words", "sum", 1, sumScript)
	if err := d.reserve(ctx, sum, berthv1.Reservation_COMPLETED); err != nil {
		return err
	}
	counted, err := d.total()
	if err != nil {
		return err
	}
	d.say("words/sum: the workers counted %d words; this process counts the same: %v", counted, counted == d.words)
	if counted != d.words {
		return fmt.Errorf("the workers counted %d words instead of %d", counted, d.words)
	}
	return nil
}

// gang returns a reservation of n workers that run a shell script.
func (d *demo) gang(job, stage string, n int, script string) *berthv1.Reservation {
	return &berthv1.Reservation{
		Job: job, Stage: stage, Count: int32(n),
		Constraints: &berthv1.Constraints{Sku: "small"},
		Task: &berthv1.Task{
			Command: "sh", Args: []string{"-ec", startMark + script}, Payload: d.list(),
			Env: map[string]string{"WORK": d.work},
		},
	}
}

// request requests a gang. If there are states, request waits until the gang has one of
// them.
func (d *demo) request(ctx context.Context, r *berthv1.Reservation,
	until ...berthv1.Reservation_State) (*berthv1.Reservation, error) {
	answer, err := d.client.Reserve(ctx, r)
	if err != nil {
		return nil, err
	}
	r.Uid = answer.GetUid()
	d.acked = append(d.acked, client.KeyOf(r))
	if len(until) == 0 {
		return answer, nil
	}
	reached, err := d.client.WaitFor(ctx, client.KeyOf(r), until...)
	if err != nil {
		return nil, fault.New(fault.Of(err).Kind, fault.Of(err).Reason, "%s did not become %s", client.KeyOf(r),
			until[0]).Because(err)
	}
	return reached, nil
}

// reserve requests a gang, waits until it has a state, and prints how long that took.
func (d *demo) reserve(ctx context.Context, r *berthv1.Reservation, until berthv1.Reservation_State) error {
	asked := time.Now()
	reached, err := d.request(ctx, r, until)
	if err != nil {
		return err
	}
	d.say("%s/%s: %s %s after %v", r.GetJob(), r.GetStage(), english.Plural(int(r.GetCount()), "worker", ""), reached.GetState(),
		time.Since(asked).Round(time.Millisecond))
	if failed := reached.GetWorkerCounts()["FAILED"]; failed > 0 {
		return fmt.Errorf("%s of %s failed", english.Plural(int(failed), "worker", ""), client.KeyOf(r))
	}
	return nil
}

// explainWait waits until a gang is pending for lack of capacity, and prints why.
func (d *demo) explainWait(ctx context.Context, r *berthv1.Reservation) error {
	for {
		answer, err := d.client.Get(ctx, client.KeyOf(r))
		if err != nil {
			return err
		}
		if answer.GetReason() == string(fault.ReasonInsufficientCapacity) {
			d.say("backlog/large: 12 workers are pending, none has a lease: %s", answer.GetMessage())
			return nil
		}
		if answer.GetState() != berthv1.Reservation_QUEUED && answer.GetState() != berthv1.Reservation_LEASING {
			return fmt.Errorf("%s is %s instead of pending", client.KeyOf(r), answer.GetState())
		}
		if err := store.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// history audits every revision of the demo.
func (d *demo) history(ctx context.Context) (*audit.Auditor, error) {
	s, err := store.Dial(store.DialConfig{Endpoints: d.fleet.Etcd()})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return audit.Check(ctx, s, keyspace.New("default"), 0)
}
