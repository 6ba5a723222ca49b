package flood_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/integration/attack/flood"
	"berth.dev/integration/built"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

var floods = flag.Bool("floods", false, "flood with the full numbers (five minutes, on an otherwise idle machine)")

// attacker makes this process run as an attacker. Its value is "address secured kind n each size".
var attacker = flag.String("attacker", "", "flood this address instead of running tests")

// binary is the program `berth`.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	if *attacker != "" {
		if err := attack(*attacker); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(built.Run(func(path string) int {
		binary = path
		return m.Run()
	}))
}

const patience = 2 * time.Minute

// sent is the line that an attacker writes when it has sent its whole flood. Its next line
// has the time until the listener has closed all connections of the attacker.
const sent = "sent"

// attack floods an address until the standard input of the process ends.
func attack(what string) error {
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // the input has ended, with or without an error
		os.Exit(0)
	}()
	var (
		address, kind string
		secured       bool
		n, each, size int
	)
	if _, err := fmt.Sscan(what, &address, &secured, &kind, &n, &each, &size); err != nil {
		return err
	}
	f := flood.New(address, secured)
	if err := map[string]func() error{
		"streams":  func() error { return f.Streams(n, each) },
		"idle":     func() error { return f.Idle(n) },
		"hellos":   func() error { return f.Handshakes(n) },
		"bodies":   func() error { return f.Bodies(n, size) },
		"messages": func() error { return f.Unfinished(n, each, size) },
		"heads":    func() error { return f.Heads(n, size) },
		"watches":  func() error { return f.Watches(n, each, size) },
		"headers":  func() error { return f.Headers(n, each, size) },
		"resets":   func() error { return f.Resets(n, each) },
		"gzip":     func() error { return f.Compressed(n, each, size) },
	}[kind](); err != nil {
		return err
	}
	fmt.Println(sent)
	since := time.Now()
	f.Wait()
	fmt.Println(time.Since(since))
	select {}
}

// startAttack starts an attacker and waits until it has sent its whole flood. It returns a
// channel with the lines that the attacker writes afterwards.
//
// A real attacker has processors of its own. This attacker shares the processors with
// Berth, so it runs with the lowest priority.
func startAttack(t *testing.T, address string, secured bool, kind string, n, each, size int) <-chan string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nice", "-n", "19", self,
		fmt.Sprintf("-attacker=%s %t %s %d %d %d", address, secured, kind, n, each, size))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	})
	if line := <-lines; line != sent {
		t.Fatalf("%s: unexpected output of the attacker: %q", kind, line)
	}
	return lines
}

// callers are well-behaved callers that read over REST and gRPC, twenty times a second with
// each.
type callers struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex
	durations []time.Duration
	errs      []error
}

func call(t *testing.T, f *fleet.Fleet) *callers {
	ctx, stop := context.WithCancel(t.Context())
	c := &callers{stop: stop}
	security, scheme := f.ClientTLS(identity.Gateway), "http://"
	if security != nil {
		scheme = "https://"
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: security}, Timeout: patience}
	every := func(do func() error) {
		c.done.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				begun := time.Now()
				err := do()
				durations := time.Since(begun)
				c.mu.Lock()
				if c.durations = append(c.durations, durations); err != nil && ctx.Err() == nil {
					c.errs = append(c.errs, err)
				}
				c.mu.Unlock()
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	every(func() error {
		res, err := web.Get(scheme + f.Gateway() + "/v1/skus")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d: %s, %w", res.StatusCode, text, err)
		}
		return nil
	})
	every(func() error {
		for _, err := range f.Client().Executors(ctx, &berthv1.ListExecutorsRequest{}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	t.Cleanup(func() {
		stop()
		c.done.Wait()
		web.CloseIdleConnections()
	})
	return c
}

// p95 returns the 95th percentile and the number of the calls since the last call of p95.
// It also returns the errors of all calls.
func (c *callers) p95() (time.Duration, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	durations := slices.Sorted(slices.Values(c.durations))
	c.durations = nil
	if len(durations) == 0 {
		return 0, 0, errors.Join(c.errs...)
	}
	return durations[len(durations)*95/100], len(durations), errors.Join(c.errs...)
}

// memory returns the value of a line in the status of a process, in bytes.
func memory(t *testing.T, pid int, line string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatalf("process %[2]d: no %[1]s in its status", line, pid)
	return 0
}

// stealTime returns a function that reports steal time (see /proc/stat). It returns the
// share of processor time that the host of this virtual machine has given to others since
// then.
func stealTime(t *testing.T) func() float64 {
	t.Helper()
	read := func() (steal, all float64) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		for i, field := range strings.Fields(line)[1:9] { // the columns are user nice system idle iowait irq softirq steal
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			if all += ticks; i == 7 {
				steal = ticks
			}
		}
		return steal, all
	}
	steal, all := read()
	return func() float64 {
		nowSteal, nowAll := read()
		return (nowSteal - steal) / max(1, nowAll-all)
	}
}

// flooded is a gateway under a flood, with other callers.
type flooded struct {
	*testing.T
	fleet   *fleet.Fleet
	gateway int // the process ID
	others  *callers
	steal   func() float64
	// goal is the target for the 95th percentile of the latency of other callers; 0 is none.
	goal time.Duration
}

func start(t *testing.T, config fleet.Config, goal time.Duration) *flooded {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	config.Binary, config.Replicas, config.Etcd = binary, 1, 1
	f, err := fleet.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &flooded{t, f, f.GatewayProcess(0).Pid(), call(t, f), stealTime(t), goal}
}

// report measures for a time and reports a phase. A call of another client must not fail. The
// latency of these calls has a goal only if the host takes less than a twentieth of the
// processors.
func (w *flooded) report(phase string, take time.Duration) {
	w.Helper()
	time.Sleep(take) // the duration of the measurement
	p95, n, err := w.others.p95()
	share := w.steal()
	w.steal = stealTime(w.T)
	w.Logf("%-27s memory %4d MiB, at most %4d MiB; 95th percentile of %d calls of others %v; the host took %.0f %% of the processors",
		phase, memory(w.T, w.gateway, "VmRSS")>>20, memory(w.T, w.gateway, "VmHWM")>>20, n,
		p95.Round(100*time.Microsecond), 100*share)
	if err != nil {
		w.Errorf("%s: a call of another client failed: %v", phase, err)
	}
	if w.goal > 0 && share < 0.05 && p95 > w.goal {
		w.Errorf("%s: the 95th percentile is %v, want at most %v", phase, p95, w.goal)
	}
}

// checkMemory checks the memory that the gateway has used at most.
func (w *flooded) checkMemory() {
	w.Helper()
	if peak := memory(w.T, w.gateway, "VmHWM"); peak >= 512<<20 {
		w.Errorf("the gateway used %d MiB, want less than 512", peak>>20)
	}
}

// checkClosed checks that the gateway has closed the connections of attackers within 30 s.
func (w *flooded) checkClosed(attackers []<-chan string) {
	w.Helper()
	for _, lines := range attackers {
		select {
		case line := <-lines:
			if durations, err := time.ParseDuration(line); err != nil || durations > 30*time.Second {
				w.Errorf("connections of a flood stayed open for %s: %v", line, err)
			}
		case <-time.After(30 * time.Second):
			w.Fatal("connections of a flood are still open after 30 s")
		}
	}
}

// load is the size of a flood.
type load struct{ idle, bodies, bodySize, streams, unfinished, resets, heads, watches, headers, gzip int }

// size returns the load, and the duration of each measurement.
func size() (load, time.Duration) {
	if *floods {
		return load{idle: 10_000, bodies: 2000, bodySize: 1 << 20, streams: 20_000, unfinished: 2000, resets: 100_000,
			heads: 200, watches: 10_000, headers: 10_000, gzip: 2000}, 3 * time.Second
	}
	return load{idle: 300, bodies: 100, bodySize: 64 << 10, streams: 500, unfinished: 100, resets: 2000, heads: 20,
		watches: 100, headers: 200, gzip: 200}, time.Second / 2
}

// A flooded gateway needs little memory, serves other callers and closes the connections of
// the flood.
func TestFloodsA7(t *testing.T) {
	l, settle := size()
	goal := time.Duration(0)
	if *floods {
		goal = 50 * time.Millisecond
	}
	w := start(t, fleet.Config{Dir: t.TempDir()}, goal)
	w.report("before", settle)
	begin := func(kind string, n, each, size int) <-chan string {
		t.Helper()
		lines := startAttack(t, w.fleet.Gateway(), false, kind, n, each, size)
		w.report(fmt.Sprintf("%d %s", n, kind), settle)
		return lines
	}
	begin("streams", l.streams, 1000, 0) // these connections may stay open
	startAttack(t, w.fleet.Gateway(), false, "watches", l.watches, 100, 60_000)
	startAttack(t, w.fleet.Gateway(), false, "headers", l.headers, 1000, 60_000)
	w.report(fmt.Sprintf("%d watches, %d headers", l.watches, l.headers), settle/2)
	begin("gzip", l.gzip, 1000, 1<<20)
	slow := []<-chan string{ // these connections must be closed within 30 s
		begin("heads", l.heads, 0, 1<<20),
		begin("idle", l.idle, 0, 0),
		begin("bodies", l.bodies, 0, l.bodySize),
		begin("messages", l.unfinished, 100, 60_000),
	}
	begin("resets", l.resets, 20, 0)
	w.checkMemory()
	if *floods {
		w.checkClosed(slow)
		w.report("after 30 s", settle)
	}
}

// The same floods do no harm to listeners that require TLS. The agents listener rejects their
// connections, which have no certificate or are in plain text. The public listener closes
// connections without TLS. It serves connections without a certificate, because a token can
// prove the role; there the limits hold.
func TestFloodsWithTLSA7(t *testing.T) {
	if !*floods {
		t.Skip("needs -floods; TestAttacksWithTLS has the short form")
	}
	l, settle := size()
	dir := t.TempDir()
	log := filepath.Join(dir, "audit")
	w := start(t, fleet.Config{Dir: dir, TLS: transport.Require,
		Flags: map[string][]string{"gateway-0": {"--audit-log", log}}}, 0)
	public, agents := w.fleet.Gateway(), w.fleet.AgentsGateways()[0]
	var rejected, slow []<-chan string
	for _, secured := range []bool{true, false} {
		rejected = append(rejected,
			startAttack(t, agents, secured, "streams", l.streams, 100, 0),
			startAttack(t, agents, secured, "messages", l.unfinished, 10, 60_000),
			startAttack(t, agents, secured, "watches", l.watches, 100, 60_000),
			startAttack(t, agents, secured, "headers", l.headers, 100, 60_000))
		startAttack(t, agents, secured, "resets", l.resets/10, 20, 0)
		w.report(fmt.Sprintf("the agents listener, TLS %t", secured), settle)
	}
	w.checkClosed(rejected)
	lines, err := os.ReadFile(log)
	if n := strings.Count(string(lines), `"TLS_REJECTED"`); err != nil || n == 0 || n > 10_000 {
		t.Errorf("the audit log has %d lines about rejected connections, %v", n, err)
	}
	slow = append(slow, startAttack(t, public, false, "hellos", l.idle, 0, 0),
		startAttack(t, agents, false, "hellos", l.idle, 0, 0))
	w.report("unfinished handshakes", settle)
	startAttack(t, public, true, "streams", l.streams, 1000, 0) // these connections may stay open
	startAttack(t, public, true, "watches", l.watches, 100, 60_000)
	startAttack(t, public, true, "headers", l.headers, 1000, 60_000)
	startAttack(t, public, true, "gzip", l.gzip, 1000, 1<<20)
	w.report("streams", settle)
	slow = append(slow, startAttack(t, public, true, "heads", l.heads, 0, 1<<20),
		startAttack(t, public, true, "idle", l.idle, 0, 0),
		startAttack(t, public, true, "bodies", l.bodies, 0, l.bodySize),
		startAttack(t, public, true, "messages", l.unfinished, 100, 60_000))
	w.report("connections and bodies", settle)
	startAttack(t, public, true, "resets", l.resets, 20, 0)
	w.report("resets", settle)
	w.checkMemory()
	w.checkClosed(slow)
	w.report("after 30 s", settle)
}
