package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/testkit/porttest"
)

// live is a command that runs until it is interrupted.
type live struct {
	out    *bufio.Reader
	stderr *bytes.Buffer
	stop   context.CancelFunc
	code   chan int
}

// updates receives each update of a terminal.
type updates chan string

// Write implements io.Writer.
func (u updates) Write(p []byte) (int, error) {
	u <- string(p)
	return len(p), nil
}

// firstUpdate runs a command on a terminal with a number of columns and lines, and returns
// its first update.
func firstUpdate(t *testing.T, f *fake, env map[string]string, width, height int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := make(updates, 100), make(chan struct{})
	var stderr bytes.Buffer
	env["BERTH_GATEWAY"] = f.address
	a := &app{
		Streams: Streams{In: strings.NewReader(""), Out: out, Err: &stderr, Terminal: true, Now: f.clock,
			Size: func() (int, int) { return width, height }, Env: func(name string) string { return env[name] }},
		every: time.Millisecond,
	}
	go func() {
		Run(ctx, newRoot(a), args)
		close(ended)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case text := <-out:
		return text
	case <-ended:
		t.Fatalf("%q: no update: %s", args, &stderr)
		return ""
	}
}

func start(t *testing.T, f *fake, terminal bool, args ...string) *live {
	return startWith(t, f, Streams{Terminal: terminal}, args...)
}

func startWith(t *testing.T, f *fake, s Streams, args ...string) *live {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	l := &live{out: bufio.NewReader(read), stderr: &bytes.Buffer{}, stop: cancel, code: make(chan int, 1)}
	a := &app{
		Streams: s,
		every:   time.Millisecond,
	}
	a.In, a.Out, a.Err, a.Now = strings.NewReader(""), write, l.stderr, f.clock
	a.Env = func(name string) string { return f.env[name] }
	go func() {
		l.code <- Run(ctx, newRoot(a), args)
		write.Close()
	}()
	t.Cleanup(func() {
		cancel()
		read.Close()
	})
	return l
}

// gatewayAt returns an environment that sets only the gateway.
func gatewayAt(address string) func(string) string {
	return func(name string) string { return map[string]string{"BERTH_GATEWAY": address}[name] }
}

// line waits for the next line of output.
func (l *live) line(t *testing.T) string {
	t.Helper()
	text, err := l.out.ReadString('\n')
	if err != nil {
		t.Fatalf("no further line: %v; standard error: %s", err, l.stderr)
	}
	return strings.TrimRight(text, "\n")
}

// interrupted interrupts the command, as Ctrl-C does, and returns its exit code.
func (l *live) interrupted() int {
	l.stop()
	io.Copy(io.Discard, l.out) //nolint:errcheck // until the command closes it
	return <-l.code
}

func (f *fake) upsert(t *testing.T, r *berthv1.Reservation, id string) {
	t.Helper()
	if _, err := f.UpsertReservation(t.Context(), &berthv1.UpsertReservationRequest{Reservation: r,
		RequestId: id}); err != nil {
		t.Fatal(err)
	}
}

func TestWatchShowsEachChangeOnce(t *testing.T) {
	f := newFake(t)
	l := start(t, f, false, "get", "reservations", "-w")
	if got := l.line(t); got != "No reservations." {
		t.Fatalf("at first: %q", got)
	}
	// The passing of time alone is not a change.
	f.do(t, []string{"pass", "10s"})
	f.upsert(t, &berthv1.Reservation{Job: "a", Stage: "b", Count: 1}, "1")
	for _, want := range []string{"", "RESERVATION  STATE", "a/b/main"} {
		if got := l.line(t); !strings.HasPrefix(got, want) || (want == "" && got != "") {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	f.do(t, []string{"pass", "10s"})
	f.cancelWhere(func(*berthv1.Reservation) bool { return true })
	l.line(t)
	l.line(t)
	if got := l.line(t); !strings.Contains(got, "CANCELLED") {
		t.Fatalf("after the cancel: %q", got)
	}
	if code := l.interrupted(); code != rpc.ExitDone {
		t.Errorf("exit %d after an interrupt: %s", code, l.stderr)
	}
}

func TestWatchOverwritesATerminal(t *testing.T) {
	f := newFake(t)
	f.upsert(t, &berthv1.Reservation{Job: "a", Stage: "b", Count: 1}, "1")
	l := start(t, f, true, "get", "reservations", "-w")
	if got := l.line(t); !strings.HasPrefix(got, clearScreen+"RESERVATION") {
		t.Fatalf("head: %q", got)
	}
	l.line(t)
	// On a terminal, a growing age is a change.
	f.do(t, []string{"pass", "10s"})
	if got := l.line(t); !strings.HasPrefix(got, clearRest+home+"RESERVATION") {
		t.Fatalf("head of the update: %q", got)
	}
	if got := l.line(t); !strings.Contains(got, "10s") {
		t.Fatalf("after 10 s: %q", got)
	}
	l.interrupted()
}

// sequences matches the control sequences of an update in place and of colors.
var sequences = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// TestWatchFitsTheTerminal checks that no line of an update wraps or scrolls on a small
// terminal, for all kinds.
func TestWatchFitsTheTerminal(t *testing.T) {
	const width, height = 60, 12
	f := newFake(t)
	for i := range 20 {
		f.upsert(t, &berthv1.Reservation{Job: "a-job-with-a-rather-long-name", Stage: fmt.Sprintf("stage-%d", i), Count: 1},
			fmt.Sprint(i))
		f.do(t, []string{"executors", fmt.Sprintf("executor-with-a-long-name-%d.example.com", i)})
		f.do(t, []string{"finding", "assigner", "QUARANTINED", fmt.Sprintf("a-job/stage/%d.1", i),
			"a long message that needs more than one line on such a small terminal, because it has many words"})
	}
	f.grant("a-job-with-a-rather-long-name", "stage-0", "main")
	for _, command := range []string{"leaders", "tenants", "audited"} {
		f.do(t, []string{command})
	}
	commands := [][]string{{"top"}}
	for _, kind := range []string{"reservations", "pending", "assignments", "executors", "tenants", "leaders",
		"findings", "audit"} {
		for _, output := range []string{"table", "wide", "name"} {
			commands = append(commands, []string{"get", kind, "-w", "-o", output})
		}
	}
	for _, command := range commands {
		text := firstUpdate(t, f, map[string]string{}, width, height, command...)
		if !strings.HasPrefix(text, clearScreen) {
			t.Fatalf("%q: begins with %q", command, text)
		}
		lines := strings.Split(text, "\n")
		if len(lines) > height { // the cursor is in the last line
			t.Errorf("%q: %d lines on a terminal of %d", command, len(lines), height)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(sequences.ReplaceAllString(line, "")); n > width {
				t.Errorf("%q: %d columns: %q", command, n, line)
			}
		}
	}
}

// TestColors checks that only states have colors, only on a terminal, and not if the user
// wants none.
func TestColors(t *testing.T) {
	f := newFake(t)
	f.do(t, []string{"executors", "ex-1", "ex-2"})
	f.do(t, []string{"unreachable", "ex-2"})
	none := map[string]string{}
	for _, command := range [][]string{{"get", "executors", "-w"}, {"get", "executors"}} {
		text := firstUpdate(t, f, none, 80, 24, command...)
		for _, want := range []string{"\x1b[32mREADY\x1b[0m ", "\x1b[31mUNREACHABLE\x1b[0m "} {
			if !strings.Contains(text, want) {
				t.Errorf("%q: no %q in %q", command, want, text)
			}
		}
		if n := strings.Count(text, "\x1b[0m"); n != 2 {
			t.Errorf("%q: %d colors in %q", command, n, text)
		}
		if text := firstUpdate(t, f, none, 80, 24, append(command, "--no-color")...); strings.Contains(text, "\x1b[3") {
			t.Errorf("%q with --no-color: %q", command, text)
		}
		if text := firstUpdate(t, f, map[string]string{"NO_COLOR": "1"}, 80, 24, command...); strings.Contains(text, "\x1b[3") {
			t.Errorf("%q with NO_COLOR: %q", command, text)
		}
	}
}

func TestWatchAsJSONWritesADocumentForEachChange(t *testing.T) {
	f := newFake(t)
	l := start(t, f, false, "get", "pending", "-w", "-o", "json")
	document := func() string {
		var b strings.Builder
		for {
			line := l.line(t)
			b.WriteString(line + "\n")
			if line == "}" {
				return b.String()
			}
		}
	}
	if got := document(); !strings.Contains(got, `"groups": []`) {
		t.Fatalf("at first: %s", got)
	}
	f.upsert(t, &berthv1.Reservation{Job: "a", Stage: "b", Count: 3}, "1")
	if got := document(); !strings.Contains(got, `"workers": 3`) {
		t.Fatalf("after an upsert: %s", got)
	}
	l.interrupted()
}

// TestWatchWaitsForTheRegistry checks that a watch waits while the registry is not ready,
// and prints one notice.
func TestWatchWaitsForTheRegistry(t *testing.T) {
	f := newFake(t)
	f.do(t, []string{"not-ready"})
	l := start(t, f, false, "get", "usage", "-w")
	f.upsert(t, &berthv1.Reservation{Job: "a", Stage: "b", Count: 1, Constraints: &berthv1.Constraints{Sku: "x"}}, "1")
	for range 3 {
		<-f.refused
	}
	if _, err := f.MarkReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := l.line(t); got != "Demand that fits no SKU:" {
		t.Fatalf("once ready: %q", got)
	}
	if code := l.interrupted(); code != rpc.ExitDone {
		t.Errorf("exit %d after an interrupt", code)
	}
	const want = "berth: the registry waits for the job services to repeat their requests, and for markReady (REGISTRY_NOT_READY); waiting\n"
	if got := l.stderr.String(); got != want {
		t.Errorf("standard error = %q", got)
	}
}

func TestEventsFollow(t *testing.T) {
	f := newFake(t)
	f.upsert(t, &berthv1.Reservation{Job: "a", Stage: "b", Count: 1}, "1")
	l := start(t, f, false, "events", "a", "-f")
	if got := l.line(t); !strings.Contains(got, "RESERVATION_QUEUED") {
		t.Fatalf("kept events: %q", got)
	}
	f.cancelWhere(func(*berthv1.Reservation) bool { return true })
	if got := l.line(t); !strings.Contains(got, "RESERVATION_CANCELLED") {
		t.Fatalf("new events: %q", got)
	}
	if code := l.interrupted(); code != rpc.ExitDone {
		t.Errorf("exit %d after an interrupt: %s", code, l.stderr)
	}
}

// TestAnInterruptEndsAFollowingCommandWithExitCode0 checks that a command that runs until it is
// interrupted also succeeds before the first answer. Other commands then fail.
func TestAnInterruptEndsAFollowingCommandWithExitCode0(t *testing.T) {
	address := porttest.Hold(t)
	for command, want := range map[string]int{
		"events a -f": rpc.ExitDone, "events a -f --tail 1": rpc.ExitDone, "logs a/b -f": rpc.ExitDone,
		"logs a/b/0 -f": rpc.ExitDone, "get reservations -w": rpc.ExitDone, "top": rpc.ExitDone,
		"events a": rpc.ExitFailed, "logs a/b/0": rpc.ExitFailed, "wait a/b": rpc.ExitFailed,
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		notices := make(updates, 100)
		a := &app{
			Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: notices, Terminal: true, Now: time.Now,
				Env: gatewayAt(address)},
			every: time.Millisecond,
		}
		code := make(chan int)
		go func() { code <- Run(ctx, newRoot(a), strings.Fields(command)) }()
		said := <-notices
		interrupt()
		if got := <-code; got != want {
			t.Errorf("%s: exit %d after %q and an interrupt", command, got, said)
		}
	}
}

// TestADeadGatewayEndsWithExitCode4 checks that a command prints one notice immediately
// if no gateway answers, and an error with a hint at the end.
func TestADeadGatewayEndsWithExitCode4(t *testing.T) {
	address := porttest.Hold(t)
	for _, args := range [][]string{{"get", "leaders"}, {"events", "a"}, {"events", "a", "-f"},
		{"get", "reservations", "-w"}, {"describe", "a/b"}, {"cancel", "a"}} {
		// If the timeout passes before the first connection attempt fails, the error is
		// different. The test then repeats the command with more time.
		for timeout := 150 * time.Millisecond; ; timeout *= 4 {
			var out, stderr bytes.Buffer
			root := New(Streams{In: strings.NewReader(""), Out: &out, Err: &stderr, Env: func(string) string { return "" },
				Now: time.Now})
			code := Run(t.Context(), root, append(args, "--gateway", address, "--timeout", timeout.String()))
			lines := strings.Split(stderr.String(), "\n")
			if code == rpc.ExitUnavailable && out.Len() == 0 && len(lines) == 4 &&
				lines[0] == "berth: no answer yet from "+address+": connection refused; retrying" &&
				strings.HasPrefix(lines[1], "berth: no definite answer from "+address+" within ") &&
				strings.HasSuffix(lines[1], ": connection refused (UNAVAILABLE)") &&
				strings.Contains(lines[2], "--gateway HOST:PORT or BERTH_GATEWAY") {
				break
			}
			if timeout > 5*time.Second {
				t.Errorf("%v: exit %d, %q, %q", args, code, out.String(), lines)
				break
			}
		}
	}
}

// TestDoctorWithoutAGateway checks that doctor prints the checks even if no gateway
// answers, and exits with code 4.
func TestDoctorWithoutAGateway(t *testing.T) {
	nobody := porttest.Hold(t)
	var out, stderr bytes.Buffer
	root := New(Streams{Out: &out, Err: &stderr, Env: func(string) string { return "" }, Now: time.Now})
	code := Run(t.Context(), root, []string{"doctor", "--gateway", nobody, "--timeout", "200ms"})
	if code != rpc.ExitUnavailable || !strings.Contains(out.String(), nobody+" does not answer: ") ||
		stderr.String() != "berth: 1 of 4 checks failed\n" {
		t.Errorf("exit %d:\n%s%s", code, &out, &stderr)
	}
}

func TestBadGateway(t *testing.T) {
	var out, stderr bytes.Buffer
	root := New(Streams{Out: &out, Err: &stderr, Env: gatewayAt("nowhere"), Now: time.Now})
	if code := Run(t.Context(), root, []string{"get", "leaders"}); code != rpc.ExitUsage ||
		!strings.Contains(stderr.String(), `"nowhere"`) {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

// TestAGatewayMayBeAURL checks that BERTH_GATEWAY and --gateway accept the URL that berth
// dev prints.
func TestAGatewayMayBeAURL(t *testing.T) {
	f := newFake(t)
	url := "http://" + f.address
	for _, c := range []struct {
		env  string
		args []string
	}{
		{url, []string{"get", "leaders"}},
		{"", []string{"get", "leaders", "--gateway", url + "/"}},
	} {
		var stderr bytes.Buffer
		root := New(Streams{Out: io.Discard, Err: &stderr, Env: gatewayAt(c.env), Now: time.Now})
		if code := Run(t.Context(), root, c.args); code != rpc.ExitDone {
			t.Errorf("BERTH_GATEWAY=%q %q: exit %d: %s", c.env, c.args, code, &stderr)
		}
	}
}

// TestAddedCommands checks that the root command also handles errors of commands that the
// caller adds.
func TestAddedCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		err  error
		code int
		want string
	}{
		{"a plain error", []string{"other"}, errors.New("it\nfailed"), rpc.ExitFailed, "berth: it failed\n"},
		{"a fault", []string{"other"}, fault.New(fault.NotFound, fault.ReasonNotFound, "no such thing"), rpc.ExitNotFound,
			"berth: no such thing (NOT_FOUND)\n"},
		{"wrong arguments", []string{"other", "x"}, nil, rpc.ExitUsage,
			"berth: unexpected argument \"x\"; usage: berth other\n  hint: see 'berth other --help'\n"},
	} {
		var stderr bytes.Buffer
		root := New(Streams{Out: io.Discard, Err: &stderr, Env: func(string) string { return "" }, Now: time.Now})
		root.AddCommand(&cobra.Command{Use: "other", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return c.err }})
		if code := Run(t.Context(), root, c.args); code != c.code || stderr.String() != c.want {
			t.Errorf("%s: exit %d, %q", c.name, code, stderr.String())
		}
	}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{&debug.BuildInfo{GoVersion: "go1.26"}, "berth v0.1.0\ncommit unknown\ngo1.26"},
		{&debug.BuildInfo{
			// A build in a workspace has no module version.
			GoVersion: "go1.26", Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
		}, "berth v0.1.0\ncommit abc, with changes\ngo1.26"},
	} {
		if got := buildOf("v0.1.0", c.info).String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
