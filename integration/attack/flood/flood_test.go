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
)

var floods = flag.Bool("floods", false, "flood with the full numbers (two minutes, on an otherwise idle machine)")

// attacker makes this process run as an attacker. Its value is "address kind n each size".
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
		n, each, size int
	)
	if _, err := fmt.Sscan(what, &address, &kind, &n, &each, &size); err != nil {
		return err
	}
	f := flood.New(address)
	if err := map[string]func() error{
		"streams":  func() error { return f.Streams(n, each) },
		"idle":     func() error { return f.Idle(n) },
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
func startAttack(t *testing.T, address, kind string, n, each, size int) <-chan string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nice", "-n", "19", self, fmt.Sprintf("-attacker=%s %s %d %d %d", address, kind, n, each, size))
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
	web := &http.Client{Transport: &http.Transport{}, Timeout: patience}
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
		res, err := web.Get("http://" + f.Gateway() + "/v1/skus")
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

// A flooded gateway needs little memory, serves other callers and closes the connections of
// the flood. The test checks the latency of calls only in phases in which the host takes
// less than a twentieth of the processors.
func TestFloodsA7(t *testing.T) {
	type load struct{ idle, bodies, bodySize, streams, unfinished, resets, heads, watches, headers, gzip int }
	l := load{idle: 300, bodies: 100, bodySize: 64 << 10, streams: 500, unfinished: 100, resets: 2000, heads: 20,
		watches: 100, headers: 200, gzip: 200}
	if *floods {
		l = load{idle: 10_000, bodies: 2000, bodySize: 1 << 20, streams: 20_000, unfinished: 2000, resets: 100_000,
			heads: 200, watches: 10_000, headers: 10_000, gzip: 2000}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f, err := fleet.Start(ctx, fleet.Config{Binary: binary, Dir: t.TempDir(), Replicas: 1, Etcd: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	gateway := f.GatewayProcess(0).Pid()
	others, steal := call(t, f), stealTime(t)
	report := func(phase string, take time.Duration) {
		t.Helper()
		time.Sleep(take) // the duration of the measurement
		p95, n, err := others.p95()
		share := steal()
		steal = stealTime(t)
		t.Logf("%-27s memory %4d MiB, at most %4d MiB; 95th percentile of %d calls of others %v; the host took %.0f %% of the processors",
			phase, memory(t, gateway, "VmRSS")>>20, memory(t, gateway, "VmHWM")>>20, n, p95.Round(100*time.Microsecond),
			100*share)
		if err != nil {
			t.Errorf("%s: a call of another client failed: %v", phase, err)
		}
		if *floods && share < 0.05 && p95 > 50*time.Millisecond {
			t.Errorf("%s: the 95th percentile is %v, want at most 50ms", phase, p95)
		}
	}
	settle := time.Second / 2
	if *floods {
		settle = 3 * time.Second
	}
	report("before", settle)

	begin := func(kind string, n, each, size int) <-chan string {
		t.Helper()
		lines := startAttack(t, f.Gateway(), kind, n, each, size)
		report(fmt.Sprintf("%d %s", n, kind), settle)
		return lines
	}
	begin("streams", l.streams, 1000, 0) // these connections may stay open
	startAttack(t, f.Gateway(), "watches", l.watches, 100, 60_000)
	startAttack(t, f.Gateway(), "headers", l.headers, 1000, 60_000)
	report(fmt.Sprintf("%d watches, %d headers", l.watches, l.headers), settle/2)
	begin("gzip", l.gzip, 1000, 1<<20)
	slow := []<-chan string{ // these connections must be closed within 30 s
		begin("heads", l.heads, 0, 1<<20),
		begin("idle", l.idle, 0, 0),
		begin("bodies", l.bodies, 0, l.bodySize),
		begin("messages", l.unfinished, 100, 60_000),
	}
	begin("resets", l.resets, 20, 0)
	if peak := memory(t, gateway, "VmHWM"); peak >= 512<<20 {
		t.Errorf("the gateway used %d MiB, want less than 512", peak>>20)
	}
	if !*floods {
		return
	}
	for _, lines := range slow {
		select {
		case line := <-lines:
			if durations, err := time.ParseDuration(line); err != nil || durations > 30*time.Second {
				t.Errorf("connections of a flood stayed open for %s: %v", line, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("connections of a flood are still open after 30 s")
		}
	}
	report("after 30 s", settle)
}
