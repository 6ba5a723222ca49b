package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/store"
)

const (
	// upsertsPerSecond and grantsPerSecond are the load. denseGrants replaces
	// grantsPerSecond if the figure is the longest time without a grant.
	upsertsPerSecond, grantsPerSecond, denseGrants = 20, 8, 20

	failoverReplicas, failoverGateways, failoverMembers = 3, 2, 3
)

const failoverHelp = `Measure how long Berth pauses while parts of it fail.

Each kind of outage gets a Berth of its own on this machine: three members of
etcd, three replicas of each service, two gateways and simulated executors. Each
of these is a process. Many queued reservations are in etcd before the services
start. Meanwhile callers send a steady load: upserts, and batches of
one worker that are granted and started.

At the moment of an outage one more upsert and one more batch are requested. A
figure is how long these took; its baseline is the same shortly before. If an
outage has many moments, or if the leader keeps working for a while, the figure
is the longest time in which nothing of the load succeeded; for kills this is
reported in addition. The slowest call of each outage is reported too. Callers
give each call 10 s; their errors are counted. If an outage ends with a new
process, its start is not part of the outage: how long it takes to read all
records is a figure of its own.

Outages that cut hosts from each other need root and network namespaces.`

// failoverOptions are the flags of `berth bench failover`.
type failoverOptions struct {
	output
	outages             []string
	rounds, otherRounds int
	spacing, ttl        time.Duration
	executors, queued   int
	growth              int
}

func failoverCommand() *cobra.Command {
	var o failoverOptions
	options := Options{Window: settle, Repeats: 1, Scale: 1, Replicas: failoverReplicas}
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Measure how long Berth pauses while parts of it fail",
		Long:  failoverHelp + "\n\n" + listOutages(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Status = cmd.ErrOrStderr()
			return o.run(cmd.Context(), cmd.OutOrStdout(), options)
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&o.outages, "outages", nil, "outages to measure (default: all)")
	set.IntVar(&o.rounds, "rounds", 50, "how often each leader is killed")
	set.IntVar(&o.otherRounds, "other-rounds", 10, "rounds of every other outage")
	set.DurationVar(&o.spacing, "spacing", 20*time.Second,
		"minimum time between two kills of one service's leader; a service permits three evictions per minute")
	set.DurationVar(&o.ttl, "ttl", leader.DefaultTTL, "TTL of leadership")
	set.IntVar(&o.executors, "executors", 1000, "simulated executors")
	set.IntVar(&o.queued, "waiting", 10_000, "reservations that stay queued")
	set.IntVar(&o.growth, "growth", 10, "measure kills again with so many times the executors and queued reservations; 0 does not")
	o.flags(set, &options)
	return cmd
}

func listOutages() string {
	var b strings.Builder
	b.WriteString("Outages:")
	for _, one := range outages {
		fmt.Fprintf(&b, "\n  %-10s %s", one.name, one.shows)
	}
	return b.String()
}

func (o *failoverOptions) check() error {
	for _, n := range []struct {
		flag         string
		value, least int
	}{{"--rounds", o.rounds, 1}, {"--other-rounds", o.otherRounds, 1}, {"--executors", o.executors, 1},
		{"--waiting", o.queued, 0}, {"--growth", o.growth, 0}} {
		if n.value < n.least {
			return fault.BadField(fault.ReasonInvalid, n.flag, "must be at least %d, got %d", n.least, n.value)
		}
	}
	for _, name := range o.outages {
		if !slices.ContainsFunc(outages, func(one outage) bool { return one.name == name }) {
			return fault.BadField(fault.ReasonInvalid, "--outages", "there is no outage %q; see berth bench failover --help",
				name)
		}
	}
	return nil
}

func (o *failoverOptions) run(ctx context.Context, out io.Writer, options Options) error {
	if err := o.check(); err != nil {
		return err
	}
	report := newReport(options)
	measure := func(one outage, growth int, small *Result) (*Result, error) {
		f := &failing{o: o, outage: one, executors: growth * o.executors, queued: growth * o.queued, grants: grantsPerSecond}
		if one.all != nil || one.lingers {
			f.grants = denseGrants
		}
		result, err := f.run(ctx, options, small)
		report.Results = append(report.Results, result)
		if err == nil {
			err = result.write(out)
		}
		return result, err
	}
	for _, one := range outages {
		if len(o.outages) > 0 && !slices.Contains(o.outages, one.name) {
			continue
		}
		result, err := measure(one, 1, nil)
		if err == nil && one.often && o.growth > 1 {
			_, err = measure(one, o.growth, result)
		}
		if err != nil {
			return errors.Join(err, replay.Save(o.json, report))
		}
	}
	return cmp.Or(replay.Save(o.json, report), report.violations())
}

// run measures the outage in a world of its own. small is the result of the same outage
// with fewer executors and reservations, to compare with, or nil.
func (f *failing) run(ctx context.Context, options Options, small *Result) (*Result, error) {
	binary, err := os.Executable()
	if err != nil {
		return &Result{}, err
	}
	config := fleet.Config{Gateways: failoverGateways, Etcd: failoverMembers, TTL: f.o.ttl, LogLevel: "info"}
	if f.outage.hosts {
		if f.hosts, err = wiring.NewNamespaces(uint16(os.Getpid())); err == nil {
			config.Place = f.hosts.Place
			defer f.hosts.Close()
		}
	}
	options.Place = ownPlace(binary, f.o.dir, config)
	shows := fmt.Sprintf("%s; %d executors, %d queued", f.outage.shows, f.executors, f.queued)
	return run(ctx, Workload{Name: f.outage.name, Shows: shows, Run: func(ctx context.Context, r *Run) error {
		if errors.Is(err, wiring.ErrNoNamespaces) {
			r.Note("not measured: %v", wiring.ErrNoNamespaces)
			return nil
		}
		return r.World(ctx, setup{seed: seedQueued(f.queued, 100, "full")}, func(ctx context.Context, w *World) error {
			return f.measure(ctx, w, small)
		})
	}}, options)
}

// measure runs the rounds under load.
func (f *failing) measure(ctx context.Context, w *World, small *Result) error {
	f.begin(w)
	sku := w.SKU("free")
	if err := f.fleet.StartSim(ctx, sku, f.executors, 4); err != nil {
		return err
	}
	if err := running.AwaitReady(ctx, w.Client, sku, f.executors, readyTimeout); err != nil {
		return err
	}
	if err := patiently(ctx, readyTimeout, "the seeded reservations are not queued", func(ctx context.Context) bool {
		pending, err := w.Client.Pending(ctx)
		n := int64(0)
		for _, group := range pending.GetGroups() {
			n += int64(group.GetReservations())
		}
		return err == nil && n >= int64(f.queued)
	}); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan struct{})
	go func() { defer close(loaded); f.load(loading) }()
	before := loadAverage()
	s, err := f.rounds(ctx)
	stop()
	<-loaded
	f.probing.Wait()
	if err != nil {
		return err
	}
	r := w.run
	s.add(r, f, small)
	r.Add(Figure{Name: "errors of callers", Samples: []float64{float64(f.failed.Load())}, Target: &Target{Max: new(0.0)}})
	if f.first != nil {
		r.Note("the first error of %d calls: %v", f.calls.Load(), f.first)
	}
	r.Note("%d calls; load average of the machine %.2f before, %.2f after", f.calls.Load(), before, loadAverage())
	return nil
}

// loadAverage returns the load average of the last minute, or 0 if the kernel does not
// report it.
func loadAverage() float64 {
	if load, err := proc.LoadAvg(); err == nil {
		return load.Load1
	}
	return 0
}

// outageSamples are the figures of an outage, in the order of their first samples.
type outageSamples struct {
	figures []Figure
	// moved is the number of outages during which etcd changed its leader: each change
	// extends all etcd leases by a TTL.
	moved int
}

// Prefixes and suffixes of figures without a target: the load before the outage, the
// longest time in which nothing of the load succeeded if the figure is the latency of a
// probe, and the time until a restarted replica was ready.
const (
	calmPrefix  = "calm, "
	loadPrefix  = "load, "
	readySuffix = ": ready again"
)

// targeted reports whether a figure has a target.
func targeted(name string) bool {
	return !strings.HasPrefix(name, calmPrefix) && !strings.HasPrefix(name, loadPrefix) &&
		!strings.HasSuffix(name, readySuffix)
}

// note adds a sample.
func (s *outageSamples) note(name string, d time.Duration) {
	i := slices.IndexFunc(s.figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		i = len(s.figures)
		s.figures = append(s.figures, Figure{Name: name, Unit: "ms"})
	}
	s.figures[i].Samples = append(s.figures[i].Samples, millis(d))
}

// rounds makes the outage in all rounds, in one service after the other.
func (f *failing) rounds(ctx context.Context) (s outageSamples, err error) {
	n, services := f.o.otherRounds, fleet.Services
	if f.outage.often {
		n = f.o.rounds
	}
	if f.outage.all != nil {
		services = []string{""}
	}
	last := map[string]time.Time{}
	for i := range n {
		for _, service := range services {
			if f.outage.often {
				if err := store.Sleep(ctx, time.Until(last[service].Add(f.o.spacing))); err != nil {
					return s, err
				}
			}
			last[service] = time.Now()
			if err := f.round(ctx, &s, service); err != nil {
				return s, err
			}
		}
		var latest []string
		for _, figure := range s.figures {
			if targeted(figure.Name) {
				latest = append(latest, fmt.Sprintf("%s %.0f ms", figure.Name, figure.Samples[len(figure.Samples)-1]))
			}
		}
		f.w.run.Say("round %d of %d: %v", i+1, n, latest)
	}
	return s, nil
}

// round makes the outage once, in the leader of a service or in all services, and adds
// its samples.
func (f *failing) round(ctx context.Context, s *outageSamples, service string) error {
	if err := f.flowing(ctx, time.Now()); err != nil {
		return err
	}
	one, calm := f.outage, time.Now()
	f.waits.forget(calm)
	before := f.sendProbe()
	if err := store.Sleep(ctx, settle); err != nil {
		return err
	}
	etcd, _ := f.fleet.EtcdLeader(ctx)
	strike, services, slow := f.strikeAll, fleet.Services, slowest
	if one.all == nil {
		strike, services, slow = f.strike, []string{service}, service+": "+slowest
	}
	o, err := strike(ctx, service)
	if err != nil {
		return err
	}
	var own time.Duration
	if raw := f.passed[noPut]; raw != nil {
		own = raw.longest(o.began, o.ended)
		s.note(calmPrefix+etcdGap, own)
	}
	for _, service := range services {
		for _, what := range measuredBy[service] {
			figure := service + ": " + what
			usual, counts := f.passed[what].longest(calm, o.began), true
			took := max(0, f.passed[what].longest(o.began, o.ended)-own)
			if o.probe != nil && !one.lingers {
				if one.often {
					s.note(loadPrefix+figure, took)
				}
				usual, counts = f.took(before, what)
				var passed bool
				if took, passed = f.took(o.probe, what); !passed {
					took = recoverWithin
				}
			}
			if counts {
				s.note(calmPrefix+figure, usual)
			}
			s.note(figure, took)
		}
	}
	s.note(calmPrefix+slow, f.waits.slowest(calm, o.began))
	s.note(slow, max(0, f.waits.slowest(o.began, o.ended)-own))
	if one.restarts {
		s.note(service+readySuffix, o.ready)
	}
	if now, _ := f.fleet.EtcdLeader(ctx); !one.etcd && now != etcd {
		s.moved++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.probes)
	return nil
}

// occurrence is an outage that was made: its begin and end, the probe that was sent in
// its first moment, and the time until the replica was ready again.
type occurrence struct {
	began, ended time.Time
	probe        *probe // nil if the outage has many moments
	ready        time.Duration
}

// strikeAll makes an outage of all services.
func (f *failing) strikeAll(ctx context.Context, _ string) (o occurrence, err error) {
	o.began = time.Now()
	if err = f.outage.all(ctx, f); err == nil {
		err = f.settled(ctx, time.Now())
	}
	o.ended = time.Now()
	return o, err
}

// etcdGap names the time without a put to etcd itself.
const etcdGap = "etcd's own gap"

// strike makes the outage in a leader and sends a probe at that moment. It waits until
// the probe succeeds, for the settle time, and until all calls up to then have ended.
// Then it ends the outage.
func (f *failing) strike(ctx context.Context, service string) (o occurrence, err error) {
	leading, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	p, _, err := f.fleet.Leader(leading, service)
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
		// If the probe does not succeed, its figure is the time limit.
		_ = until(ctx, "", func(context.Context) bool { _, passed := f.took(o.probe, what); return passed })
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
func (s *outageSamples) add(r *Run, f *failing, small *Result) {
	loaded := false
	for _, figure := range s.figures {
		loaded = loaded || strings.HasPrefix(figure.Name, loadPrefix)
		if targeted(figure.Name) {
			t := f.outage.target(f.o)
			if small != nil {
				for _, base := range small.Figures {
					if base.Name == figure.Name {
						t = Target{Of: Median, AtMost: 2 * base.Median, Max: new(2 * base.Max)}
					}
				}
			}
			if strings.HasSuffix(figure.Name, slowest) {
				t = Target{Max: t.Max} // a median is for one call, and this is the slowest of many
			}
			figure.Against, figure.Target = calmPrefix+figure.Name, &t
		}
		r.Add(figure)
	}
	if loaded {
		r.Note("load: the longest time in which nothing of the load succeeded, including the interval of upserts, %v, or of batches, %v", time.Second/upsertsPerSecond, time.Second/time.Duration(f.grants))
	}
	if s.moved > 0 {
		r.Note("etcd changed its leader during %d of the outages, which extends all etcd leases by a TTL", s.moved)
	}
}
