package attack

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

const (
	// patience is the time limit of every wait. Only a failure takes this long.
	patience = 90 * time.Second
	// simulatedExecutors is the number of simulated executors: sim-0, sim-1 and so on.
	simulatedExecutors = 4
	// recovery is the time limit until leasing works after an attack. The tests check it only
	// with -acceptance, because a slow machine may take longer.
	recovery = time.Second
)

// shared is the fleet that all attacks use that leave it intact.
var shared sharedFleet

type sharedFleet struct {
	once              sync.Once
	err               error
	dir               string
	fleet             *fleet.Fleet
	store             *store.Etcd
	pids              map[string]int
	bystandersStarted map[string]string // where the bystanders' workers ran at the start
}

// limits are lower than the defaults, so that an attack reaches them within seconds.
var limits = map[string][]string{
	model.ServiceRegistry:      {"--max-queued-per-job", "50", "--max-stored-bytes-per-job", "1000000"},
	model.ServiceExecutorState: {"--max-new-executors", "60", "--max-catalog", "20"},
}

func (s *sharedFleet) start() (err error) {
	if s.dir, err = os.MkdirTemp("", "berth-attack-"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.fleet, err = fleet.Start(ctx, fleet.Config{Binary: binary, Dir: s.dir, Flags: limits}); err != nil {
		return err
	}
	if s.store, err = store.Dial(store.DialConfig{Endpoints: s.fleet.Etcd()}); err != nil {
		return err
	}
	if err := s.fleet.StartSim(ctx, "sim", simulatedExecutors, 4); err != nil {
		return err
	}
	if err := s.fleet.StartAgent(ctx, fleet.Agent{ID: "host", SKU: "host", Slots: 4,
		Allow: []string{"/bin/sleep", "/usr/bin/env"}}); err != nil {
		return err
	}
	// The bystanders are simulated and real workers that no attack may affect.
	for _, r := range []*berthv1.Reservation{
		{Job: "bystander", Stage: "simulated", Count: 6, Constraints: &berthv1.Constraints{Sku: "sim"}},
		{Job: "bystander", Stage: "real", Count: 1, Constraints: &berthv1.Constraints{Sku: "host"},
			Task: &berthv1.Task{Command: "sleep", Args: []string{"3600"}}},
	} {
		if _, err := s.fleet.Client().Reserve(ctx, r); err != nil {
			return err
		}
		if _, err := s.fleet.Client().WaitFor(ctx, client.KeyOf(r), berthv1.Reservation_ACTIVE); err != nil {
			return err
		}
	}
	s.pids = map[string]int{}
	for _, processes := range s.fleet.Processes() {
		for _, p := range processes {
			s.pids[p.Name] = p.Pid()
		}
	}
	for {
		if s.bystandersStarted, err = bystanders(ctx, s.fleet.Client()); err != nil {
			return err
		}
		running := 0
		for _, state := range s.bystandersStarted {
			if state != "" {
				running++
			}
		}
		if running == 7 {
			return nil
		}
		if err := store.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the bystanders' workers are not running: %v", s.bystandersStarted)
		}
	}
}

// bystanders returns where each of the bystanders' workers runs. If a worker does not run,
// its place is empty.
func bystanders(ctx context.Context, c *client.Client) (map[string]string, error) {
	list := map[string]string{}
	for a, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Job: "bystander"}) {
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s/%d", a.GetStage(), a.GetIndex())
		if list[name] = ""; a.GetState() == berthv1.Assignment_RUNNING {
			list[name] = fmt.Sprintf("%s as %d.%d, epoch %d, attempt %d", a.GetExecutor(), a.GetIndex(), a.GetNumber(),
				a.GetEpoch(), a.GetAttempts())
		}
	}
	return list, nil
}

// close audits the whole history and stops the fleet.
func (s *sharedFleet) close() error {
	if s.fleet == nil {
		return nil
	}
	defer os.RemoveAll(s.dir)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := audit.Check(ctx, s.store, keyspace.New("default"), 0)
	if err == nil {
		for _, v := range a.Violations() {
			err = fmt.Errorf("audit of the history in etcd: %v", v)
		}
	}
	s.store.Close() // a stopping etcd waits for watches to close
	if failed := s.fleet.Close(); err == nil {
		err = failed
	}
	return err
}

// target is the fleet that one test attacks.
type target struct {
	*testing.T
	*sharedFleet
	ctx    context.Context
	client *client.Client
}

// attack starts the shared fleet if it does not run yet. At the end of the test, it checks
// that the attack did not affect others.
func attack(t *testing.T) *target {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	w := &target{T: t, sharedFleet: &shared, ctx: ctx, client: shared.fleet.Client()}
	t.Cleanup(w.checkBystanders)
	return w
}

// checkBystanders checks that leasing works, that the bystanders' workers run where they
// did at the start, and that no process has restarted.
func (w *target) checkBystanders() {
	w.Helper()
	began := time.Now()
	r := &berthv1.Reservation{Job: "after", Stage: "s", Name: fmt.Sprintf("n%d", began.UnixNano()), Count: 2,
		Constraints: &berthv1.Constraints{Sku: "sim"}}
	if _, err := w.client.Reserve(w.ctx, r); err != nil {
		w.Errorf("after the attack: %v", err)
		return
	}
	if _, err := w.client.WaitFor(w.ctx, client.KeyOf(r), berthv1.Reservation_ACTIVE); err != nil {
		w.Errorf("a new gang did not become ACTIVE after the attack: %v", err)
		w.showLogs()
		return
	}
	took := time.Since(began)
	w.Logf("a new gang became ACTIVE %v after the attack", took.Round(time.Millisecond))
	if *acceptance && took > recovery {
		w.Errorf("a new gang became ACTIVE after %v, want at most %v", took, recovery)
	}
	if _, err := w.client.Cancel(w.ctx, client.KeyOf(r)); err != nil {
		w.Errorf("cancel: %v", err)
	}
	now, err := bystanders(w.ctx, w.client)
	if err != nil || !maps.Equal(now, w.bystandersStarted) {
		w.Errorf("the bystanders' workers changed from %v to %v, %v", w.bystandersStarted, now, err)
	}
	for _, processes := range w.fleet.Processes() {
		for _, p := range processes {
			if pid := w.pids[p.Name]; pid != 0 && (!p.Running() || p.Pid() != pid) {
				w.Errorf("%s restarted or ended", p.Name)
			}
		}
	}
	w.showLogs()
}

func (w *target) showLogs() {
	if !w.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			continue
		}
		w.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-3000):])
	}
}

// leader returns the process and the term of a service's leader.
func (w *target) leader(service string) (*child.Process, int64) {
	w.Helper()
	p, term, err := w.fleet.Leader(w.ctx, service)
	if err != nil {
		w.Fatal(err)
	}
	return p, term
}

// rogueClient connects to a listener without credentials. It can make only the calls of
// attackCalls.
func (w *target) rogueClient(at place) *grpc.ClientConn {
	w.Helper()
	_, address, err := at.of(w.ctx, w.fleet)
	if err != nil {
		w.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		append(w.recorded(at), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	return conn
}

// rogueCaller is a rogueClient of the public listener that uses Berth's client library.
func (w *target) rogueCaller() *client.Client {
	w.Helper()
	c, err := client.Dial(w.fleet.Gateways(), client.WithDialOptions(w.recorded(public)...))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	return c
}

// until polls check, for conditions that give no signal. check returns what is missing, or
// an empty string.
func (w *target) until(check func() string) {
	w.Helper()
	for deadline := time.Now().Add(patience); ; {
		missing := check()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("after %v: %s", patience, missing)
		}
		if err := store.Sleep(w.ctx, 10*time.Millisecond); err != nil {
			w.Fatalf("%s: %v", missing, err)
		}
	}
}

// refused checks that a call failed with the given kind and reason.
func (w *target) refused(what string, err error, kind fault.Kind, reason fault.Reason) {
	w.Helper()
	f := rpc.FromStatus(err)
	if f == nil || f.Kind != kind || f.Reason != reason {
		w.Errorf("%s: got %v, want %v %s", what, err, kind, reason)
	}
}

// checkMemory checks the memory that a process has used at most.
func checkMemory(t *testing.T, p *child.Process) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return // there is no such file except on Linux
	}
	_, peak, _ := strings.Cut(string(text), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscan(peak, &kilobytes); err != nil || kilobytes > 512<<10 {
		t.Errorf("%s used %d MiB, want at most 512: %v", p.Name, kilobytes>>10, err)
	}
}
