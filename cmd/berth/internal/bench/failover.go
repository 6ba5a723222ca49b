package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

const (
	// upsertsPerSecond and grantsPerSecond are the rates of the load. denseGrants replaces
	// grantsPerSecond if the figure is the longest time without a grant.
	upsertsPerSecond, grantsPerSecond, denseGrants = 20, 8, 20

	failoverReplicas, failoverGateways, failoverMembers = 3, 2, 3

	// failoverExecutors and failoverQueued are the numbers of simulated executors and of
	// reservations that stay queued.
	failoverExecutors, failoverQueued = 1000, 10_000
	// killSpacing is the minimum time between two kills of the leader of one service,
	// because the standbys of a service evict at most three leaders per minute.
	killSpacing = 20 * time.Second
)

const failoverHelp = `Measure how long Berth pauses while parts of it fail.

The bench starts a separate cluster on this machine for each kind of outage:
three members of etcd, three replicas of each service, two gateways, 1,000
simulated executors and 10,000 queued reservations. As the load, callers upsert
queued reservations and request batches of one worker that start immediately.
The timeout of each call is 10 s.

At the moment of an outage the bench sends a probe: one more upsert and one
more batch. A figure is the duration of a step of the probe. Its baseline is
the duration of the same step of a probe shortly before the outage. If an
outage affects all services, or if the leader keeps working for a while, the
figure is instead the longest time in which that step of the load did not
succeed. For kills the bench reports both. It also reports the slowest call, the
number of failed calls, and the time until a restarted process has read all
records.

Outages that disconnect hosts need root and network namespaces.`

// failoverFlags are the flags of `berth bench failover`.
type failoverFlags struct {
	Options
	outages                     []string
	rounds, otherRounds, growth int
}

func failoverCommand() *cobra.Command {
	f := failoverFlags{Options: Options{Window: settle, Repeats: 1, Scale: 1, Replicas: failoverReplicas}}
	long := failoverHelp + "\n\nOutages:"
	for _, one := range outages {
		long += fmt.Sprintf("\n  %-10s %s", one.name, one.shows)
	}
	cmd := &cobra.Command{
		Use:     "failover",
		Short:   "Measure how long Berth pauses while parts of it fail",
		Long:    long,
		Example: "  berth bench failover",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			workloads, err := f.workloads()
			if err != nil {
				return err
			}
			f.Status = cmd.ErrOrStderr()
			return runAll(cmd.Context(), workloads, f.Options, cmd.OutOrStdout())
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&f.outages, "outages", nil, "outages to measure (default: all)")
	set.IntVar(&f.rounds, "rounds", 50, "number of kills of each leader")
	set.IntVar(&f.otherRounds, "other-rounds", 10, "rounds of every other outage")
	set.IntVar(&f.growth, "growth", 10, "factor for the numbers of executors and queued reservations of a second run of kills (0 or 1 omits it)")
	f.outputFlags(set)
	return cmd
}

// workloads returns a workload for each chosen outage. If growth is above 1, an outage that
// is often repeated gets a second workload with more executors and reservations.
func (f *failoverFlags) workloads() ([]Workload, error) {
	for flag, n := range map[string]int{"--rounds": f.rounds, "--other-rounds": f.otherRounds} {
		if n < 1 {
			return nil, fault.BadField(fault.ReasonInvalid, flag, "must be at least 1, got %d", n)
		}
	}
	var err error
	if f.outages, err = process.CheckList("outages", "", f.outages); err != nil {
		return nil, err
	}
	for _, name := range f.outages {
		if !slices.ContainsFunc(outages, func(one outage) bool { return one.name == name }) {
			return nil, fault.BadField(fault.ReasonInvalid, "--outages", "there is no outage %q; see berth bench failover --help",
				name)
		}
	}
	var list []Workload
	for _, one := range outages {
		if len(f.outages) > 0 && !slices.Contains(f.outages, one.name) {
			continue
		}
		rounds := f.otherRounds
		if one.often {
			rounds = f.rounds
		}
		small := &failing{outage: one, rounds: rounds, size: 1}
		list = append(list, small.workload())
		if one.often && f.growth > 1 {
			list = append(list, (&failing{outage: one, rounds: rounds, size: f.growth, small: small}).workload())
		}
	}
	return list, nil
}

func (f *failing) workload() Workload {
	shows := fmt.Sprintf("%s; %d executors, %d queued", f.outage.shows, f.size*failoverExecutors, f.size*failoverQueued)
	return Workload{Name: f.outage.name, Shows: shows, Run: f.run}
}

// run measures the outage in a new world.
func (f *failing) run(ctx context.Context, r *Run) error {
	config := fleet.Config{Gateways: failoverGateways, Etcd: failoverMembers, LogLevel: "info",
		Seed: seedQueued(f.size*failoverQueued, 100, "full")}
	if f.outage.hosts {
		hosts, err := wiring.NewNamespaces(uint16(os.Getpid()))
		if errors.Is(err, wiring.ErrNoNamespaces) {
			r.Note("not measured: %v", wiring.ErrNoNamespaces)
			return nil
		}
		if err != nil {
			return err
		}
		defer hosts.Close()
		f.hosts, config.Place = hosts, hosts.Place
	}
	return r.World(ctx, config, f.measure)
}

// measure runs the rounds under load.
func (f *failing) measure(ctx context.Context, w *World) error {
	f.w, f.grants, f.probes = w, grantsPerSecond, map[string]*probe{}
	if f.outage.all != nil || f.outage.lingers {
		f.grants = denseGrants
	}
	f.passed = map[string]*gaps{noWrite: {}, noGrant: {}, noDispatch: {}, noStart: {}}
	if f.outage.etcd {
		f.passed[noPut] = &gaps{}
	}
	sku, executors := w.SKU("free"), f.size*failoverExecutors
	if err := f.w.fleet.StartSim(ctx, sku, executors, 4); err != nil {
		return err
	}
	if err := running.AwaitReady(ctx, w.Client, sku, executors, readyTimeout); err != nil {
		return err
	}
	if err := until(ctx, readyTimeout, "the seeded reservations are not queued", func(ctx context.Context) bool {
		pending, err := w.Client.PendingPage(ctx, &berthv1.ListPendingRequest{PageSize: 1})
		return err == nil && int(pending.GetTotalReservations()) >= f.size*failoverQueued
	}); err != nil {
		return err
	}
	if err := w.tail(ctx, f.observe); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	f.load(loading)
	s, err := f.makeRounds(ctx)
	stop()
	f.running.Wait()
	if err != nil {
		return err
	}
	s.add(w.Run, f)
	f.figures = w.Figures
	w.Add(Figure{Name: "errors of callers", Samples: []float64{float64(f.failed.Load())}, Target: &Target{Max: new(0.0)}})
	if f.first != nil {
		w.Note("the first error of %d calls: %v", f.calls.Load(), f.first)
	}
	w.Note("%d calls", f.calls.Load())
	return nil
}

// outageSamples are the figures of an outage, in the order of their first samples.
type outageSamples struct {
	figures []Figure
	// moved is the number of outages during which etcd changed its leader, although the
	// outage was not an outage of etcd. Each change extends all etcd leases by a TTL.
	moved int
}

// Prefixes and suffixes of figures without a target.
const (
	// calmPrefix marks a figure that was measured before the outage.
	calmPrefix = "calm, "
	// loadPrefix marks the longest time in which no step of the load succeeded, if the
	// figure without the prefix is the latency of a probe.
	loadPrefix = "load, "
	// readySuffix marks the time until a restarted replica was ready.
	readySuffix = ": ready again"
)

// note adds a sample to a figure. The figure has a target if against names its baseline.
func (s *outageSamples) note(name, against string, d time.Duration) {
	i := slices.IndexFunc(s.figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		i = len(s.figures)
		s.figures = append(s.figures, Figure{Name: name, Unit: "ms", Against: against})
	}
	s.figures[i].Samples = append(s.figures[i].Samples, millis(d))
}

// makeRounds causes the outage in all rounds, in one service after another.
func (f *failing) makeRounds(ctx context.Context) (s outageSamples, err error) {
	services := fleet.Services
	if f.outage.all != nil {
		services = []string{""}
	}
	last := map[string]time.Time{}
	for i := range f.rounds {
		for _, service := range services {
			if f.outage.often {
				if err := store.Sleep(ctx, time.Until(last[service].Add(killSpacing))); err != nil {
					return s, err
				}
			}
			last[service] = time.Now()
			if err := f.round(ctx, &s, service); err != nil {
				return s, err
			}
		}
		f.w.Say("round %d of %d", i+1, f.rounds)
	}
	return s, nil
}

// round causes the outage once, in the leader of a service or in all services, and adds the
// samples of the outage.
func (f *failing) round(ctx context.Context, s *outageSamples, service string) error {
	if err := f.flowing(ctx, time.Now()); err != nil {
		return err
	}
	one, calm := f.outage, time.Now()
	before := f.sendProbe()
	if err := store.Sleep(ctx, settle); err != nil {
		return err
	}
	etcd, _ := f.w.fleet.EtcdLeader(ctx)
	services, slow := []string{service}, service+": "+slowest
	if one.all != nil {
		services, slow = fleet.Services, slowest
	}
	o, err := f.strike(ctx, service)
	if err != nil {
		return err
	}
	var own time.Duration
	if raw := f.passed[noPut]; raw != nil {
		own = raw.longest(o.began, o.ended)
		s.note(calmPrefix+etcdGap, "", own)
	}
	for _, service := range services {
		for _, what := range measuredBy[service] {
			figure := service + ": " + what
			usual := f.passed[what].longest(calm, o.began)
			took := max(0, f.passed[what].longest(o.began, o.ended)-own)
			if o.probe != nil && !one.lingers {
				if one.often {
					s.note(loadPrefix+figure, "", took)
				}
				usual, _ = f.took(before, what)
				took, _ = f.took(o.probe, what)
			}
			s.note(calmPrefix+figure, "", usual)
			s.note(figure, calmPrefix+figure, took)
		}
	}
	s.note(calmPrefix+slow, "", f.waits.slowest(calm, o.began))
	s.note(slow, calmPrefix+slow, max(0, f.waits.slowest(o.began, o.ended)-own))
	if one.restarts {
		s.note(service+readySuffix, "", o.ready)
	}
	if now, _ := f.w.fleet.EtcdLeader(ctx); !one.etcd && now != etcd {
		s.moved++
	}
	return nil
}

// occurrence describes one outage that strike has caused. It has the begin and the end of
// the outage, the probe that was sent at its begin, and the time until the replica was
// ready again.
type occurrence struct {
	began, ended time.Time
	probe        *probe // nil for an outage of all services
	ready        time.Duration
}

// etcdGap is the name of the longest time without a successful put to etcd itself.
const etcdGap = "etcd's own gap"

// strike causes the outage. If the outage affects one leader, strike sends a probe at the
// moment of the outage. It waits until the probe succeeds, then for the settle time, then
// until all calls have ended. Then strike ends the outage.
func (f *failing) strike(ctx context.Context, service string) (o occurrence, err error) {
	if f.outage.all != nil {
		o.began = time.Now()
		if err = f.outage.all(ctx, f); err == nil {
			err = f.settled(ctx, time.Now())
		}
		o.ended = time.Now()
		return o, err
	}
	leading, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	p, _, err := f.w.fleet.Leader(leading, service)
	if err != nil {
		return o, err
	}
	o.began = time.Now()
	heal, err := f.outage.strike(ctx, f, p)
	if err != nil {
		return o, err
	}
	o.probe = f.sendProbe()
	for _, what := range measuredBy[service] {
		// If a step of the probe does not succeed, its duration is the time limit.
		_ = until(ctx, recoverWithin, "", func(context.Context) bool { _, passed := f.took(o.probe, what); return passed })
	}
	if err := store.Sleep(ctx, settle); err != nil {
		return o, err
	}
	if err := f.settled(ctx, time.Now()); err != nil {
		return o, err
	}
	o.ended = time.Now()
	if err := heal(); err != nil {
		return o, err
	}
	err = f.ready(ctx, p)
	o.ready = time.Since(o.ended)
	return o, err
}

// add adds the figures to the report.
func (s *outageSamples) add(r *Run, f *failing) {
	for _, figure := range s.figures {
		if figure.Against != "" {
			figure.Target = f.target(figure.Name)
		}
		r.Add(figure)
	}
	if f.outage.often {
		r.Note("load: the longest time in which nothing of the load succeeded, including the interval of upserts, %v, or of batches, %v", time.Second/upsertsPerSecond, time.Second/time.Duration(f.grants))
	}
	if s.moved > 0 {
		r.Note("etcd changed its leader during %d of the outages, which extends all etcd leases by a TTL", s.moved)
	}
}

// target returns the target of a figure. If the same outage was measured with fewer
// executors and reservations, the target is twice that measurement.
func (f *failing) target(name string) *Target {
	t := f.outage.target
	if f.small != nil {
		for _, base := range f.small.figures {
			if base.Name == name {
				t = Target{Of: Median, AtMost: 2 * base.Median, Max: new(2 * base.Max)}
			}
		}
	}
	if strings.HasSuffix(name, slowest) {
		t = Target{Max: t.Max} // the median bounds a single call, not the slowest of many
	}
	return &t
}
