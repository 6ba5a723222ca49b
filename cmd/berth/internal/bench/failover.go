package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// denseGrants are the batches a second where the longest time without one counts.
const denseGrants = 20

const failoverHelp = `Measure how long Berth pauses while parts of it fail.

Each kind of outage gets a Berth of its own on this machine: three members of
etcd, three replicas of each service, two gateways, simulated executors, each a
process of its own, and many reservations that wait. A steady load goes on all
the while: upserts, and batches of one worker that are granted and started. At
the moment of an outage one more of each is asked for, and a figure is how long
that took, beside the same just before. Of outages that have many moments, or
whose leader goes on for a while, it is the longest time in which nothing of the
load went through; of kills that is told beside. So is how long the slowest call
of each outage took, whenever it was asked. Callers give each call 10 s; their
errors are counted. Where an outage ends with a new process, its start is not
part of it: how long that takes to have read all that is stored is told apart.
What waits is in etcd before the services start.

Outages that cut hosts from each other need root and network namespaces.`

// failoverOptions of a run.
type failoverOptions struct {
	outages            []string
	rounds, ttlRounds  int
	spacing, ttl       time.Duration
	executors, waiting int
	growth             int
	upserts, grants    int
	services           []string
	json, dir, logs    string
	profiles           string
}

func failoverCommand() *cobra.Command {
	var o failoverOptions
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Measure how long Berth pauses while parts of it fail",
		Long:  failoverHelp + "\n\n" + listOutages(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&o.outages, "outages", nil, "outages to measure; all unless given")
	set.StringSliceVar(&o.services, "services", fleet.Services, "services whose leaders fail, one after the other")
	set.IntVar(&o.rounds, "rounds", 50, "how often each leader is killed")
	set.IntVar(&o.ttlRounds, "other-rounds", 10, "how often every other outage is made")
	set.DurationVar(&o.spacing, "spacing", 20*time.Second, "time between two kills of one service's leader at least: three evictions a minute are allowed")
	set.DurationVar(&o.ttl, "ttl", leader.DefaultTTL, "TTL of leadership")
	set.IntVar(&o.executors, "executors", 1000, "simulated executors")
	set.IntVar(&o.waiting, "waiting", 10_000, "reservations that wait all the while")
	set.IntVar(&o.growth, "growth", 10, "measure kills again with so many times the executors and waiting reservations; 0 does not")
	set.IntVar(&o.upserts, "upserts", 20, "upserts a second")
	set.IntVar(&o.grants, "grants", 8, "batches a second that are granted and started; 20 at least in outages of many moments")
	set.StringVar(&o.json, "json", "", "file to write every sample to, as JSON")
	set.StringVar(&o.dir, "dir", "", "directory below which etcd keeps its data; that for temporary files unless given")
	set.StringVar(&o.logs, "logs", "", "directory to keep the logs of all processes in")
	set.StringVar(&o.profiles, "profiles", "", "directory to keep processor profiles of the services in; taking them costs some of what is measured")
	return cmd
}

func listOutages() string {
	var b strings.Builder
	b.WriteString("Outages:\n")
	for _, one := range outages {
		fmt.Fprintf(&b, "  %-10s %s\n", one.name, one.shows)
	}
	return strings.TrimRight(b.String(), "\n")
}

func (o *failoverOptions) check() error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"--rounds", o.rounds}, {"--other-rounds", o.ttlRounds}, {"--executors", o.executors}, {"--upserts", o.upserts}, {"--grants", o.grants}} {
		if n.value < 1 {
			return fault.BadField(fault.ReasonInvalid, n.flag, "has to be at least 1")
		}
	}
	for _, name := range o.outages {
		if !slices.ContainsFunc(outages, func(one outage) bool { return one.name == name }) {
			return fault.BadField(fault.ReasonInvalid, "--outages", "there is no outage %q; see berth bench failover --help", name)
		}
	}
	for _, name := range o.services {
		if !slices.Contains(fleet.Services, name) {
			return fault.BadField(fault.ReasonInvalid, "--services", "there is no service %q", name)
		}
	}
	if o.waiting < 0 || o.growth < 0 {
		return fault.BadField(fault.ReasonInvalid, "--waiting", "neither it nor --growth can be below 0")
	}
	return nil
}

func (o *failoverOptions) run(ctx context.Context, out, status io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	report := newReport(&flags{window: settle, repeats: 1, replicas: failoverReplicas, scale: 1}, status)
	for _, one := range outages {
		if len(o.outages) > 0 && !slices.Contains(o.outages, one.name) {
			continue
		}
		alone := *o
		if one.all != nil || one.winds {
			alone.grants = max(alone.grants, denseGrants)
		}
		results, err := alone.measure(ctx, binary, one, status, nil)
		report.Results = append(report.Results, results)
		if err == nil {
			err = results.write(out)
		}
		if err == nil && one.often && o.growth > 1 {
			grown := *o
			grown.executors, grown.waiting = o.growth*o.executors, o.growth*o.waiting
			var many *Result
			many, err = grown.measure(ctx, binary, one, status, results)
			report.Results = append(report.Results, many)
			if err == nil {
				err = many.write(out)
			}
		}
		if err != nil {
			return errors.Join(err, report.save(o.json))
		}
	}
	if err := report.save(o.json); err != nil {
		return err
	}
	if n := report.violations(); n > 0 {
		return fault.New(fault.Internal, fault.ReasonInternal, "%d promises were broken", n)
	}
	return nil
}

// measure does one kind of outage in a world of its own. Small is the result
// of the same with less, to compare with, or nil.
func (o *failoverOptions) measure(ctx context.Context, binary string, one outage, status io.Writer, small *Result) (*Result, error) {
	shows := fmt.Sprintf("%s; %d executors, %d waiting", one.shows, o.executors, o.waiting)
	f := &failing{o: o, passed: map[string]*gaps{writes: {}, grants: {}, hands: {}, begins: {}}, probes: map[string]*probe{}}
	if one.etcd {
		f.passed[puts] = &gaps{}
	}
	w := Workload{Name: one.name, Shows: shows, Run: func(ctx context.Context, r *Run) error {
		err := r.worldOf(ctx, setup{seed: seedWaiting(o.waiting, 100, "full")}, func(ctx context.Context, w *World) error {
			f.w = w
			return f.measure(ctx, r, one, small)
		})
		if errors.Is(err, wiring.ErrNoNamespaces) {
			r.Note("not measured: %v", wiring.ErrNoNamespaces)
			return nil
		}
		return err
	}}
	return run(ctx, w, Options{Window: settle, Repeats: 1, Scale: 1, Replicas: failoverReplicas, Status: status, Profiles: o.profiles, Place: f.place(binary, one.hosts)})
}

// place starts the Berth that is to fail.
func (f *failing) place(binary string, hosts bool) Place {
	return func(ctx context.Context, r *Run) (_ *site, err error) {
		dir, err := os.MkdirTemp(f.o.dir, "berth-failover-")
		if err != nil {
			return nil, err
		}
		end := func() error {
			var err error
			if f.fleet != nil {
				err = f.fleet.Close()
			}
			if f.hosts != nil {
				f.hosts.Close()
			}
			return errors.Join(err, f.keepLogs(dir), os.RemoveAll(dir))
		}
		config := fleet.Config{
			Binary: binary, Dir: dir, Replicas: failoverReplicas, Gateways: failoverGateways, Etcd: failoverMembers, TTL: f.o.ttl, LogLevel: "info", Seed: r.setup.seed,
		}
		if f.o.profiles != "" {
			config.Flags = map[string][]string{"": {"--pprof"}, model.ServiceGateway: {"--http-listen", "127.0.0.1:0"}}
		}
		if hosts {
			if f.hosts, err = wiring.NewNamespaces(uint16(os.Getpid())); err != nil {
				return nil, errors.Join(err, end())
			}
			config.Place = f.hosts.Place
		}
		if f.fleet, err = fleet.Start(ctx, config); err != nil {
			return nil, errors.Join(err, end())
		}
		return &site{
			gateways: f.fleet.Gateways(), agentsGateways: f.fleet.AgentsGateways(), etcd: f.fleet.Etcd(), cluster: "default", prefix: "b-", binary: binary, dir: dir,
			processes: f.fleet.Processes(), passing: true, close: end,
		}, nil
	}
}

// keepLogs moves the logs of the processes to where they are to be kept.
func (f *failing) keepLogs(dir string) error {
	if f.o.logs == "" {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	kept := filepath.Join(f.o.logs, filepath.Base(dir))
	if err := os.MkdirAll(kept, 0o750); err != nil {
		return err
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(kept, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// measure carries the rounds out while the load goes on.
func (f *failing) measure(ctx context.Context, r *Run, one outage, small *Result) error {
	sku := f.w.SKU("free")
	if err := f.fleet.StartSim(ctx, sku, f.o.executors, 4); err != nil {
		return err
	}
	if err := patiently(ctx, readyTimeout, "not all executors are ready", func(ctx context.Context) bool {
		n, err := f.w.ready(ctx, "free")
		return err == nil && n >= f.o.executors
	}); err != nil {
		return err
	}
	if err := patiently(ctx, readyTimeout, "not all that was to wait does", func(ctx context.Context) bool {
		pending, err := f.w.Client.Pending(ctx)
		n := int64(0)
		for _, group := range pending.GetGroups() {
			n += int64(group.GetReservations())
		}
		return err == nil && n >= int64(f.o.waiting)
	}); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan struct{})
	go func() { defer close(loaded); f.load(loading) }()
	before := loadAverage()
	s, err := f.rounds(ctx, one)
	stop()
	<-loaded
	f.asking.Wait()
	if err != nil {
		return err
	}
	s.add(r, one, f.o, small)
	errs := Figure{Name: "errors of callers", Unit: "", Samples: []float64{float64(f.failed.Load())}, Target: &Target{Max: new(0.0)}}
	r.Add(errs)
	if f.first != nil {
		r.Note("the first error of %d calls: %v", f.calls.Load(), f.first)
	}
	r.Note("%d calls; load average of the machine %s before, %s after", f.calls.Load(), before, loadAverage())
	return nil
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // absent: left empty
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// found are the samples of a kind of outage, by what they are of; and those of
// the load before.
type found struct {
	gaps, calm map[string][]float64
	// load is the longest time in which nothing of the load went through, where the
	// gaps are what was asked for at the moment of the outage.
	load map[string][]float64
	// again is how long replicas that were started again took to be ready.
	again map[string][]float64
	// moved counts the outages during which etcd changed its leader by itself: every
	// etcd lease then lasts for another TTL from there.
	moved int
}

// rounds does the outage as often as it is to be, to one service after the other.
func (f *failing) rounds(ctx context.Context, one outage) (found, error) {
	s := found{gaps: map[string][]float64{}, calm: map[string][]float64{}, load: map[string][]float64{}, again: map[string][]float64{}}
	n := f.o.ttlRounds
	if one.often {
		n = f.o.rounds
	}
	last := map[string]time.Time{}
	for i := range n {
		if one.all != nil {
			if err := f.once(ctx, &s, one, ""); err != nil {
				return s, err
			}
			f.w.run.Say("round %d of %d", i+1, n)
			continue
		}
		for _, service := range f.o.services {
			if one.often {
				if err := store.Sleep(ctx, time.Until(last[service].Add(f.o.spacing))); err != nil {
					return s, err
				}
			}
			last[service] = time.Now()
			if err := f.once(ctx, &s, one, service); err != nil {
				return s, err
			}
		}
		f.w.run.Say("round %d of %d: %v", i+1, n, s.latest())
	}
	return s, nil
}

// latest are the samples of the last round, for who waits.
func (s found) latest() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s.gaps)) {
		list = append(list, fmt.Sprintf("%s %.0f ms", name, s.gaps[name][len(s.gaps[name])-1]))
	}
	return list
}

// once does the outage, to the leader of a service or to all, and notes what did
// not go through meanwhile.
func (f *failing) once(ctx context.Context, s *found, one outage, service string) error {
	if err := f.flowing(ctx, time.Now()); err != nil {
		return err
	}
	for _, g := range f.passed {
		g.forget(time.Now())
	}
	calm := time.Now()
	f.waits.forget(calm)
	before := f.ask()
	if err := store.Sleep(ctx, settle); err != nil {
		return err
	}
	etcd := f.etcdLeader(ctx)
	if one.all != nil {
		err := f.throughout(ctx, s, one, calm)
		if err == nil && !one.etcd && etcd != f.etcdLeader(ctx) {
			s.moved++
		}
		return err
	}
	for _, what := range measuredBy[service] {
		figure := service + ": " + what
		if one.winds {
			s.calm[figure] = append(s.calm[figure], millis(f.passed[what].longest(calm, time.Now())))
		} else if took, did := before.took(what); did {
			s.calm[figure] = append(s.calm[figure], millis(took))
		}
	}
	slow := service + ": " + slowest
	s.calm[slow] = append(s.calm[slow], millis(f.waits.slowest(calm, time.Now())))
	struck, err := f.strike(ctx, one, service)
	if err != nil {
		return err
	}
	if one.restarts {
		figure := service + ": ready again"
		s.again[figure] = append(s.again[figure], millis(struck.again))
	}
	if etcd != f.etcdLeader(ctx) {
		s.moved++
	}
	for _, what := range measuredBy[service] {
		figure := service + ": " + what
		took, did := struck.asked.took(what)
		switch {
		case one.winds:
			took = f.passed[what].longest(struck.began, struck.ended)
		case !did:
			took = recoverWithin
		}
		s.gaps[figure] = append(s.gaps[figure], millis(took))
		if one.often {
			s.load[figure] = append(s.load[figure], millis(f.passed[what].longest(struck.began, struck.ended)))
		}
	}
	s.gaps[slow] = append(s.gaps[slow], millis(f.waits.slowest(struck.began, struck.ended)))
	f.forget(before, struck.asked)
	return nil
}

// struck is an outage of a leader: when it was made and undone, what was asked for the
// moment that it was, and how long the replica took after that to be ready again.
type struck struct {
	asked        *probe
	began, ended time.Time
	again        time.Duration
}

// throughout does an outage that has many moments, and notes the longest time in
// which nothing went through.
func (f *failing) throughout(ctx context.Context, s *found, one outage, calm time.Time) error {
	began := time.Now()
	if err := one.all(ctx, f); err != nil {
		return err
	}
	if err := f.settled(ctx, time.Now()); err != nil {
		return err
	}
	ended := time.Now()
	var own time.Duration
	if raw := f.passed[puts]; raw != nil {
		own = raw.longest(began, ended)
		s.calm[etcdGap] = append(s.calm[etcdGap], millis(own))
	}
	s.gaps[slowest] = append(s.gaps[slowest], millis(max(0, f.waits.slowest(began, ended)-own)))
	s.calm[slowest] = append(s.calm[slowest], millis(f.waits.slowest(calm, began)))
	for _, name := range fleet.Services {
		for _, what := range measuredBy[name] {
			figure := name + ": " + what
			gap := max(0, f.passed[what].longest(began, ended)-own)
			s.gaps[figure] = append(s.gaps[figure], millis(gap))
			s.calm[figure] = append(s.calm[figure], millis(f.passed[what].longest(calm, began)))
		}
	}
	return nil
}

// etcdGap is the time without a put to etcd itself.
const etcdGap = "etcd's own gap"

// etcdLeader is which member of etcd leads; -1 while none does.
func (f *failing) etcdLeader(ctx context.Context) int {
	i, err := f.fleet.EtcdLeader(ctx)
	if err != nil {
		return -1
	}
	return i
}

// strike does the outage to a leader, asks for something the moment that it is done,
// waits until that goes through, some time more, and until all calls up to then have
// ended, and undoes the outage.
func (f *failing) strike(ctx context.Context, one outage, service string) (s struck, err error) {
	var p *child.Process
	if err := until(ctx, service+" has no leader", func(ctx context.Context) bool {
		holder, err := f.leader(ctx, service)
		p = holder
		return err == nil && holder != nil
	}); err != nil {
		return s, err
	}
	s.began = time.Now()
	heal, err := one.strike(ctx, f, p)
	if err != nil {
		return s, err
	}
	s.asked = f.ask()
	f.answered(ctx, s.asked, service)
	if err := store.Sleep(ctx, settle); err != nil {
		return s, err
	}
	if err := f.settled(ctx, time.Now()); err != nil {
		return s, err
	}
	s.ended = time.Now()
	if err := heal(); err != nil {
		return s, err
	}
	err = f.ready(ctx, p)
	s.again = time.Since(s.ended)
	return s, err
}

// add adds the figures to the report, those of the calm before first.
func (s found) add(r *Run, one outage, o *failoverOptions, small *Result) {
	for _, name := range slices.Sorted(maps.Keys(s.calm)) {
		r.Add(Figure{Name: "calm, " + name, Unit: "ms", Samples: s.calm[name]})
	}
	target := one.target(o)
	for _, name := range slices.Sorted(maps.Keys(s.gaps)) {
		t := target
		f := Figure{Name: name, Unit: "ms", Samples: s.gaps[name], Against: "calm, " + name, Target: &t}
		if small != nil {
			for _, base := range small.Figures {
				if base.Name == name {
					t = Target{Of: Median, AtMost: 2 * base.Median, Max: new(2 * base.Max)}
				}
			}
		}
		if strings.HasSuffix(name, slowest) {
			t = Target{Max: t.Max} // a median is of calls, and this is the slowest of many
		}
		r.Add(f)
	}
	for _, name := range slices.Sorted(maps.Keys(s.load)) {
		r.Add(Figure{Name: "load, " + name, Unit: "ms", Samples: s.load[name]})
	}
	if len(s.load) > 0 {
		r.Note("load: nothing of it went through for so long; what lies between two upserts, %v, or two batches, %v, is part of that", time.Second/time.Duration(o.upserts), time.Second/time.Duration(o.grants))
	}
	for _, name := range slices.Sorted(maps.Keys(s.again)) {
		r.Add(Figure{Name: name, Unit: "ms", Samples: s.again[name]})
	}
	if s.moved > 0 {
		r.Note("etcd changed its leader during %d of the outages: its leases last for another TTL from there", s.moved)
	}
}
