package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/leader"
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
	options := Options{Window: settle, Repeats: 1, Scale: 1, Replicas: failoverReplicas, Status: status, Profiles: o.profiles}
	report := newReport(options)
	for _, one := range outages {
		if len(o.outages) > 0 && !slices.Contains(o.outages, one.name) {
			continue
		}
		alone := *o
		if one.all != nil || one.winds {
			alone.grants = max(alone.grants, denseGrants)
		}
		result, err := alone.measure(ctx, binary, one, options, nil)
		report.Results = append(report.Results, result)
		if err == nil {
			err = result.write(out)
		}
		if err == nil && one.often && o.growth > 1 {
			grown := *o
			grown.executors, grown.waiting = o.growth*o.executors, o.growth*o.waiting
			var many *Result
			many, err = grown.measure(ctx, binary, one, options, result)
			report.Results = append(report.Results, many)
			if err == nil {
				err = many.write(out)
			}
		}
		if err != nil {
			return errors.Join(err, report.save(o.json))
		}
	}
	return cmp.Or(report.save(o.json), report.violations())
}

// measure does one kind of outage in a world of its own. Small is the result
// of the same with less, to compare with, or nil.
func (o *failoverOptions) measure(ctx context.Context, binary string, one outage, options Options, small *Result) (*Result, error) {
	shows := fmt.Sprintf("%s; %d executors, %d waiting", one.shows, o.executors, o.waiting)
	f := &failing{o: o, passed: map[string]*gaps{writes: {}, grants: {}, hands: {}, begins: {}}, probes: map[string]*probe{}}
	if one.etcd {
		f.passed[puts] = &gaps{}
	}
	w := Workload{Name: one.name, Shows: shows, Worlds: func(ctx context.Context, r *Run) error {
		err := r.World(ctx, setup{seed: seedWaiting(o.waiting, 100, "full")}, func(ctx context.Context, w *World) error {
			f.w = w
			return f.measure(ctx, r, one, small)
		})
		if errors.Is(err, wiring.ErrNoNamespaces) {
			r.Note("not measured: %v", wiring.ErrNoNamespaces)
			return nil
		}
		return err
	}}
	options.Place = f.place(binary, one.hosts)
	return run(ctx, w, options)
}

// place starts the Berth that is to fail.
func (f *failing) place(binary string, hosts bool) Place {
	keep := func(dir string) error {
		if f.hosts != nil {
			f.hosts.Close()
		}
		return f.keepLogs(dir)
	}
	return ownPlace(binary, f.o.dir, keep, func(config *fleet.Config) (err error) {
		config.Gateways, config.Etcd, config.TTL, config.LogLevel = failoverGateways, failoverMembers, f.o.ttl, "info"
		if hosts {
			if f.hosts, err = wiring.NewNamespaces(uint16(os.Getpid())); err == nil {
				config.Place = f.hosts.Place
			}
		}
		return err
	})
}

// keepLogs copies the logs of the processes to the directory for them.
func (f *failing) keepLogs(dir string) error {
	if f.o.logs == "" {
		return nil
	}
	kept := filepath.Join(f.o.logs, filepath.Base(dir))
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	err = errors.Join(err, os.MkdirAll(kept, 0o750))
	for _, file := range logs {
		text, failed := os.ReadFile(file)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(kept, filepath.Base(file)), text, 0o600))
	}
	return err
}

// measure carries the rounds out while the load goes on.
func (f *failing) measure(ctx context.Context, r *Run, one outage, small *Result) error {
	f.fleet = f.w.site.fleet
	sku := f.w.SKU("free")
	if err := f.fleet.StartSim(ctx, sku, f.o.executors, 4); err != nil {
		return err
	}
	if err := running.AwaitReady(ctx, f.w.Client, sku, f.o.executors, readyTimeout); err != nil {
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

// found are the samples of a kind of outage.
type found struct {
	// names are the names of the figures, in the order of their first samples.
	names   []string
	samples map[string][]float64
	// moved is the number of outages during which etcd changed its leader by itself:
	// every etcd lease then lasts for another TTL from there.
	moved int
}

// Prefixes and suffixes of figures that have no target: the load before the outage,
// the longest time in which nothing of the load went through where the figure is the
// latency of a probe, and the time that a restarted replica took to be ready.
const (
	calmPrefix  = "calm, "
	loadPrefix  = "load, "
	readySuffix = ": ready again"
)

// targeted reports whether a figure has a target.
func targeted(name string) bool {
	return !strings.HasPrefix(name, calmPrefix) && !strings.HasPrefix(name, loadPrefix) && !strings.HasSuffix(name, readySuffix)
}

// note adds a sample.
func (s *found) note(name string, d time.Duration) {
	if s.samples == nil {
		s.samples = map[string][]float64{}
	}
	if s.samples[name] == nil {
		s.names = append(s.names, name)
	}
	s.samples[name] = append(s.samples[name], millis(d))
}

// rounds makes the outage in all rounds, in one service after the other.
func (f *failing) rounds(ctx context.Context, one outage) (found, error) {
	var s found
	n, services := f.o.ttlRounds, f.o.services
	if one.often {
		n = f.o.rounds
	}
	if one.all != nil {
		services = []string{""}
	}
	last := map[string]time.Time{}
	for i := range n {
		for _, service := range services {
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
		var latest []string
		for _, name := range s.names {
			if targeted(name) {
				latest = append(latest, fmt.Sprintf("%s %.0f ms", name, s.samples[name][len(s.samples[name])-1]))
			}
		}
		f.w.run.Say("round %d of %d: %v", i+1, n, latest)
	}
	return s, nil
}

// once makes the outage, in the leader of a service or in all services, and notes
// what did not go through meanwhile.
func (f *failing) once(ctx context.Context, s *found, one outage, service string) error {
	if err := f.flowing(ctx, time.Now()); err != nil {
		return err
	}
	calm := time.Now()
	f.waits.forget(calm)
	before := f.ask()
	if err := store.Sleep(ctx, settle); err != nil {
		return err
	}
	etcd := f.etcdLeader(ctx)
	strike, services, slow := f.throughout, fleet.Services, slowest
	if one.all == nil {
		strike, services, slow = f.strike, []string{service}, service+": "+slowest
	}
	struck, err := strike(ctx, one, service)
	if err != nil {
		return err
	}
	var own time.Duration
	if raw := f.passed[puts]; raw != nil {
		own = raw.longest(struck.began, struck.ended)
		s.note(calmPrefix+etcdGap, own)
	}
	for _, service := range services {
		for _, what := range measuredBy[service] {
			figure := service + ": " + what
			usual, counts := f.passed[what].longest(calm, struck.began), true
			took := max(0, f.passed[what].longest(struck.began, struck.ended)-own)
			if struck.asked != nil && !one.winds {
				if one.often {
					s.note(loadPrefix+figure, took)
				}
				usual, counts = before.took(what)
				var did bool
				if took, did = struck.asked.took(what); !did {
					took = recoverWithin
				}
			}
			if counts {
				s.note(calmPrefix+figure, usual)
			}
			s.note(figure, took)
		}
	}
	s.note(calmPrefix+slow, f.waits.slowest(calm, struck.began))
	s.note(slow, max(0, f.waits.slowest(struck.began, struck.ended)-own))
	if one.restarts {
		s.note(service+readySuffix, struck.again)
	}
	if !one.etcd && etcd != f.etcdLeader(ctx) {
		s.moved++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.probes)
	return nil
}

// struck is an outage: its begin and end, the probe that was sent in its first moment
// if it has one, and the time that the replica took to be ready again.
type struck struct {
	asked        *probe
	began, ended time.Time
	again        time.Duration
}

// throughout makes an outage of all services, which has many moments.
func (f *failing) throughout(ctx context.Context, one outage, _ string) (s struck, err error) {
	s.began = time.Now()
	if err = one.all(ctx, f); err == nil {
		err = f.settled(ctx, time.Now())
	}
	s.ended = time.Now()
	return s, err
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
	leading, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	p, _, err := f.fleet.Leader(leading, service)
	if err != nil {
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

// add adds the figures to the report.
func (s *found) add(r *Run, one outage, o *failoverOptions, small *Result) {
	loaded := false
	for _, name := range s.names {
		f := Figure{Name: name, Unit: "ms", Samples: s.samples[name]}
		loaded = loaded || strings.HasPrefix(name, loadPrefix)
		if targeted(name) {
			t := one.target(o)
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
			f.Against, f.Target = calmPrefix+name, &t
		}
		r.Add(f)
	}
	if loaded {
		r.Note("load: the longest time in which nothing of the load went through, including the interval of upserts, %v, or of batches, %v", time.Second/time.Duration(o.upserts), time.Second/time.Duration(o.grants))
	}
	if s.moved > 0 {
		r.Note("etcd changed its leader during %d of the outages: its leases last for another TTL from there", s.moved)
	}
}
