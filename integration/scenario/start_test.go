package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
	"berth.dev/testkit/porttest"
)

// A replica that cannot reach etcd waits for etcd and logs that.
func TestReplicaWaitsForEtcd(t *testing.T) {
	t.Parallel()
	starting, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dir := t.TempDir()
	address := porttest.Hold(t)
	p := child.New("registry", ownBinary(t, dir), dir, nil, "registry", "--etcd-endpoints", address, "--gateways",
		"127.0.0.1:1", "--ttl", "2s")
	if err := p.Start(starting, "--listen", "--http-listen"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	expect := newWeb(t, p.Addresses().HTTP).expect
	expect("/healthz", http.StatusOK, "alive")
	expect("/readyz", http.StatusServiceUnavailable, `"ready":false`,
		"the view of etcd is not current: etcd does not answer: "+address+" (connection refused)")
	expect("/leaderz", http.StatusServiceUnavailable, `"leading":false`, "reason")
	until(t, func() string {
		if text := tail(p.LogFile(), 10_000); !strings.Contains(text, address) {
			return "the log does not mention etcd: " + text
		}
		return ""
	})

	data := t.TempDir()
	stopEtcd := startEtcd(t, address, data)
	expect("/readyz", http.StatusOK, `"ready":true`)
	expect("/leaderz", http.StatusOK, `"leading":true`)

	// No gateway answers the replica, which then cannot call other services.
	awaitLog(t, p, "level=WARN", "no gateway answers: 127.0.0.1:1 (connection refused)")

	// When etcd stops, the replica keeps running but loses its leadership. When etcd is back,
	// it leads again.
	stopEtcd()
	expect("/leaderz", http.StatusServiceUnavailable, `"leading":false`)
	expect("/healthz", http.StatusOK, "alive")
	startEtcd(t, address, data)
	expect("/leaderz", http.StatusOK, `"leading":true`)
	if !p.Running() {
		t.Error("the replica exited")
	}
	stopping, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if err := p.Stop(stopping); err != nil {
		t.Error(err)
	}
	checkHistory(t, connect(t, store.DialConfig{Endpoints: []string{address}}), 0, nil)
}

// startEtcd starts an etcd at an address with its data in dir. It returns a function that
// stops etcd.
func startEtcd(t *testing.T, address, dir string) (stop func()) {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = dir
	clients, peers := []url.URL{{Scheme: "http", Host: address}}, []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = clients, clients
	config.ListenPeerUrls, config.AdvertisePeerUrls = peers, peers
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.TickMs, config.ElectionMs, config.UnsafeNoFsync = 10, 100, true
	config.LogLevel, config.LogOutputs = "error", []string{filepath.Join(dir, "etcd.log")}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(etcd.Close)
	t.Cleanup(stop)
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("etcd is not ready")
	}
	return stop
}

// If a process cannot start, its error names the wrong option.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := ownBinary(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := l.Addr().String()
	config := filepath.Join(dir, "berth.yaml")
	if err := os.WriteFile(config, []byte("log-level: warn\netcd-endpoint: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		exit int
		says []string
	}{
		{"busy port of a replica", []string{"registry", "--listen", busy, "--http-listen", "127.0.0.1:0"}, rpc.ExitFailed,
			[]string{"--listen", busy, "in use"}},
		{"busy HTTP port of a replica", []string{"assigner", "--listen", "127.0.0.1:0", "--http-listen", busy},
			rpc.ExitFailed, []string{"--http-listen", busy, "in use"}},
		{"busy port of a gateway", []string{"gateway", "--listen", busy}, rpc.ExitFailed,
			[]string{"--listen", busy, "in use"}},
		{"busy port of an agent", []string{"agent", "--listen", busy, "--dir", filepath.Join(dir, "agent")}, rpc.ExitFailed,
			[]string{"--listen", busy, "in use"}},
		{"busy port of berth dev", []string{"dev", "--listen", busy}, rpc.ExitFailed, []string{"--listen", busy, "in use"}},
		{"unknown key in a file", []string{"registry", "--config", config}, rpc.ExitUsage, []string{"etcd-endpoint", config}},
		{"unknown key in a gateway's file", []string{"gateway", "--config", config}, rpc.ExitUsage,
			[]string{"etcd-endpoint", config}},
		{"no such file", []string{"registry", "--config", filepath.Join(dir, "none.yaml")}, rpc.ExitUsage,
			[]string{"none.yaml"}},
		{"unknown log level", []string{"registry", "--log-level", "loud"}, rpc.ExitUsage, []string{"loud"}},
		{"open to the network", []string{"registry", "--listen", "0.0.0.0:0"}, rpc.ExitUsage,
			[]string{"--listen", "0.0.0.0:0", "--insecure"}},
		{"a TTL too short", []string{"registry", "--ttl", "1s", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"},
			rpc.ExitUsage, []string{"the TTL of leadership must be between 2s and 1m0s, got 1s"}},
		{"negative slots", []string{"dev", "--slots", "0"}, rpc.ExitUsage, []string{"--slots"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit, said := berth(t, context.Background(), own, nil, c.args...)
			if exit != c.exit {
				t.Errorf("exit code %d, want %d: %s", exit, c.exit, said)
			}
			for _, words := range c.says {
				if !strings.Contains(said, words) {
					t.Errorf("no %q in: %s", words, said)
				}
			}
		})
	}
	noneLeft(t, dir)
}

// foreground is a command in a process group of its own, as in a terminal.
type foreground struct {
	*exec.Cmd
	lines *bufio.Scanner
	ended chan error
}

func startForeground(t *testing.T, binary string, args ...string) *foreground {
	t.Helper()
	f := &foreground{Cmd: exec.Command(binary, args...), ended: make(chan error, 1)}
	f.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write := io.Pipe()
	f.Stdout, f.Stderr = write, write
	f.lines = bufio.NewScanner(read)
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := f.Wait()
		write.Close()
		f.ended <- err
	}()
	t.Cleanup(func() { syscall.Kill(-f.Process.Pid, syscall.SIGKILL) }) //nolint:errcheck // it may have ended
	return f
}

// awaitLine reads the output until a line contains the words, and returns that line.
func (f *foreground) awaitLine(t *testing.T, words string) string {
	t.Helper()
	var said []string
	for f.lines.Scan() {
		said = append(said, f.lines.Text())
		if strings.Contains(f.lines.Text(), words) {
			return f.lines.Text()
		}
	}
	t.Fatalf("the process exited without the line %q:\n%s", words, strings.Join(said, "\n"))
	return ""
}

// terminal has the signals with which a terminal ends its commands: Ctrl-C once, or both the
// terminal and its shell that are closed.
var terminal = map[string][]syscall.Signal{"Ctrl-C": {syscall.SIGINT}, "closed": {syscall.SIGHUP, syscall.SIGHUP}}

// interrupt sends signals and waits until the command has ended. It reports whether the command
// was still running.
func (f *foreground) interrupt(t *testing.T, signals []syscall.Signal) bool {
	t.Helper()
	go func() {
		for f.lines.Scan() { // keeps the output from blocking the command
		}
	}()
	running := true
	for i, signal := range signals {
		err := syscall.Kill(-f.Process.Pid, signal)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		running = running && (i > 0 || err == nil)
	}
	select {
	case <-f.ended:
	case <-time.After(patience):
		t.Fatal("the process did not exit")
	}
	return running
}

// After Ctrl-C, or if the terminal is closed, no process of Berth and no worker is left.
func TestInterruptDev(t *testing.T) {
	t.Parallel()
	for name, signals := range terminal {
		t.Run(name, func(t *testing.T) { interruptDev(t, signals) })
	}
}

func interruptDev(t *testing.T, signals []syscall.Signal) {
	dir := t.TempDir()
	dev := startForeground(t, ownBinary(t, dir), "dev", "--agents", "2", "--slots", "4", "--listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(dir, "data"))
	gateway := strings.TrimPrefix(strings.Fields(dev.awaitLine(t, "REST and gRPC"))[3], "http://")
	c, err := client.Dial([]string{gateway})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := shell("dev", "s", 6, `trap '' INT; while :; do sleep 1; done`)
	r.Task.Env = map[string]string{"MARK": dir}
	if _, err := c.Reserve(ctx, r); err != nil {
		t.Fatal(err)
	}
	running := 0
	for event, err := range c.Events(ctx, "dev", "") {
		if err != nil {
			t.Fatal(err)
		}
		if event.GetKind() == berthv1.Event_WORKER_RUNNING {
			running += int(event.GetCount())
		}
		if running == 6 {
			break
		}
	}
	if n := len(processes(dir)); n < 7 {
		t.Fatalf("%d processes run", n)
	}
	watch := startForeground(t, dev.Path, "--gateway", gateway, "events", "dev", "--follow")
	watch.awaitLine(t, "WORKER_RUNNING")
	if !watch.interrupt(t, signals) || !watch.ProcessState.Success() {
		t.Errorf("berth events: %v", watch.ProcessState)
	}
	if !dev.interrupt(t, signals) || !dev.ProcessState.Success() {
		t.Errorf("berth dev: %v", dev.ProcessState)
	}
	noneLeft(t, dir)
}

func TestInterruptDemo(t *testing.T) {
	t.Parallel()
	for name, signals := range terminal {
		t.Run(name, func(t *testing.T) { interruptDemo(t, signals) })
	}
}

func interruptDemo(t *testing.T, signals []syscall.Signal) {
	dir := t.TempDir()
	docs := filepath.Join(dir, "docs")
	if err := os.Mkdir(docs, 0o750); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := os.WriteFile(filepath.Join(docs, fmt.Sprintf("%d.md", i)), []byte("some words to count\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := ownBinary(t, dir)
	// When the test interrupts the demo, the demo would run for only a second or two longer.
	// If the test is slower than that, the demo has already ended, and the test starts another
	// demo.
	for tries := 5; ; tries-- {
		demo := startForeground(t, binary, "demo", "--docs", docs, "--dir", filepath.Join(dir, fmt.Sprintf("demo-%d", tries)))
		// At this line, ten workers sleep, and a leader was just killed.
		demo.awaitLine(t, "kill -9")
		if there := demo.interrupt(t, signals); there && !demo.ProcessState.Success() {
			break
		} else if tries == 1 {
			t.Fatalf("interrupted after %v, it exited with %v", there, demo.ProcessState)
		}
	}
	noneLeft(t, dir)
}
