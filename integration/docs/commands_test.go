package docs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// margin is a factor for the times that a document promises, because other tests load the
	// machine.
	margin = 10
	// patience is the time limit of commands whose document states no time. Only a failure
	// takes this long.
	patience  = time.Minute
	pollEvery = 20 * time.Millisecond
)

// executed lists the documents whose commands a reader executes in order.
var executed = []struct {
	document string
	// commands is the minimum number of commands. If a document is no longer read correctly,
	// the test fails.
	commands int
	// shell executes the commands in a shell, so that they may be any commands. Otherwise they
	// are those of berth and curl, with variables.
	shell bool
	// then has documents whose commands are executed after those of the document.
	then []string
	// needs is a program that the commands use and that a machine may not have.
	needs string
	// dev starts Berth if the document starts it in a way that a test cannot.
	dev string
}{
	{document: "docs/tutorial/reserve-your-first-gang.md", commands: 17},
	{document: "docs/tutorial/rest-api.md", commands: 20},
	{document: "docs/tutorial/kubernetes.md", commands: 8, dev: "berth dev --agents 3 --listen 127.0.0.1:8080"},
	{document: "docs/tutorial/job-service.md", commands: 10, shell: true},
	{document: "docs/tutorial/agents.md", commands: 12, shell: true},
	{document: "docs/tutorial/cache-fleet.md", commands: 30, shell: true},
	{document: "docs/tutorial/replicated-database.md", commands: 22, shell: true},
	{document: "docs/tutorial/cells.md", commands: 20, shell: true},
	{document: "docs/how-to/find-gang-members.md", commands: 14, shell: true, needs: "jq"},
	{document: "docs/reference/api.md", commands: 17},
	{document: "docs/how-to/deploy.md", commands: 7, shell: true, then: []string{
		"docs/how-to/move-a-leader.md", "docs/how-to/set-up-tls.md",
	}},
	{document: "docs/how-to/turn-hosts-into-executors.md", commands: 2},
	{document: "docs/how-to/restart-workers.md", commands: 13},
	{document: "docs/how-to/signal-workers.md", commands: 8},
	{document: "docs/how-to/hold-capacity.md", commands: 7, dev: "berth dev --executors 3 --listen 127.0.0.1:8080"},
	{document: "docs/how-to/autoscale.md", commands: 2, dev: "berth dev --executors 8 --listen 127.0.0.1:8080"},
}

// TestDocumentedCommands executes the commands of each document against a new Berth. It
// compares the answers with those in the document.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	berth(t) // Build the program before any time limit starts.
	for _, e := range executed {
		t.Run(e.document, func(t *testing.T) {
			if e.needs != "" {
				if _, err := exec.LookPath(e.needs); err != nil {
					t.Skipf("the commands need %s: %v", e.needs, err)
				}
			}
			t.Parallel() // Most of the time of each document is spent waiting for answers.
			w := runner{t: t, vars: map[string]string{}, client: &http.Client{Transport: &http.Transport{}}}
			defer w.client.CloseIdleConnections()
			parse := parse
			if e.shell {
				parse = parseShell
			}
			var steps []step
			for _, name := range append([]string{e.document}, e.then...) {
				more, err := parse(executable(t, name))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for i := range more {
					more[i].document = name
				}
				steps = append(steps, more...)
			}
			if len(steps) < e.commands {
				t.Fatalf("only %d commands, want at least %d", len(steps), e.commands)
			}
			if e.dev != "" {
				steps = slices.Insert(steps, 0, step{command: e.dev})
			}
			for _, s := range steps {
				do := w.do
				if e.shell && !strings.HasPrefix(s.command, "berth dev ") {
					do = func(s step) error {
						return w.retry(s, func(ctx context.Context) (answer, missing string, err error) { return w.shell(ctx, s) })
					}
				}
				if err := do(s); err != nil {
					t.Fatalf("%s:%d: %s\n%v", s.document, s.line, s.command, err)
				}
			}
		})
	}
}

// runner executes the commands of a document, as a reader does.
type runner struct {
	t    *testing.T
	vars map[string]string
	// printed is the address in the document. real is the address that replaces it.
	printed, real string
	client        *http.Client
	// terminal executes the commands of documents that use a shell. addresses replaces the
	// addresses in the document.
	terminal  *shell
	addresses *strings.Replacer
}

func (w *runner) do(s step) error {
	if name, value, ok := assignment(s.command); ok {
		w.vars[name] = value
		return nil
	}
	if s.command == "make build" || s.command == `export PATH="$PWD/bin:$PATH"` {
		return nil // the test has built berth, and starts it by its path
	}
	args, err := words(s.command, w.vars)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "curl":
		call, err := parseCurl(args[1:])
		if err != nil {
			return err
		}
		call.url = strings.Replace(call.url, w.printed, w.real, 1)
		return w.retry(s, func(ctx context.Context) (answer, missing string, err error) {
			return w.curl(ctx, s, call)
		})
	case len(args) > 1 && args[0] == "berth" && args[1] == "dev":
		return w.dev(args[1:])
	case strings.Join(args, " ") == "make demo":
		// The make target builds berth, which this test has already done, and executes this
		// command.
		return w.retry(s, func(ctx context.Context) (answer, missing string, err error) {
			return w.berth(ctx, s, []string{"demo"})
		})
	case args[0] == "berth":
		return w.retry(s, func(ctx context.Context) (answer, missing string, err error) {
			return w.berth(ctx, s, args[1:])
		})
	}
	return fmt.Errorf("this test cannot execute %s", args[0])
}

// retry executes a command. If the document says "within", retry repeats the command until
// its answer is the documented one. Otherwise it executes the command once.
func (w *runner) retry(s step, execute func(context.Context) (answer, missing string, err error)) error {
	limit, once := patience, true
	for _, e := range s.expect {
		if e.within > 0 {
			limit, once = margin*e.within, false
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	missing, answer := "an answer", ""
	for {
		got, want, err := execute(ctx)
		switch {
		case err == nil && want == "":
			return nil
		case once:
			return fmt.Errorf("wants %s\ngot   %s (%v)", want, got, err)
		case err == nil:
			// The time limit may abort the last attempt, so keep the answer of the attempt before
			// it.
			missing, answer = want, got
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("within %v: want %s\ngot   %s (%v)", limit, missing, answer, err)
		}
	}
}

// curl makes a call once. A stream has no end, so curl stops reading when the answer has
// everything that the document expects.
func (w *runner) curl(ctx context.Context, s step, call curl) (answer, missing string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, call.method, call.url, strings.NewReader(call.data))
	if err != nil {
		return "", "", err
	}
	for name, values := range call.header {
		req.Header[name] = values
	}
	res, err := w.client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer res.Body.Close()
	var text strings.Builder
	if call.showHead {
		fmt.Fprintf(&text, "%s %s\n", res.Proto, res.Status)
		if err := res.Header.Write(&text); err != nil {
			return "", "", err
		}
		text.WriteByte('\n')
	} else if res.StatusCode/100 != 2 {
		body, _ := io.ReadAll(res.Body)
		return string(body), res.Status, fmt.Errorf("error not expected by the document")
	}
	chunk := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(chunk)
		text.Write(chunk[:n])
		if err == nil && !call.stream {
			continue
		}
		vars, missing := match(text.String(), s.expect, w.vars)
		if missing == "" {
			w.vars = vars
			return text.String(), "", nil
		}
		if err != nil {
			return text.String(), missing, nil
		}
	}
}

// berth executes a berth command once, in the root of the repository.
func (w *runner) berth(ctx context.Context, s step, args []string) (answer, missing string, err error) {
	program, err := filepath.Abs(berth(w.t))
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BERTH_GATEWAY="+w.real)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), "exit code 0", err
	}
	vars, missing := match(string(out), s.expect, w.vars)
	if missing == "" {
		w.vars = vars
	}
	return string(out), missing, nil
}

// dev starts `berth dev` with the documented options on a free port. It waits until the
// process prints its address.
func (w *runner) dev(args []string) error {
	agents := ""
	for i, arg := range args {
		if i+1 == len(args) {
			break
		}
		switch arg {
		case "--listen":
			w.printed, args[i+1] = args[i+1], "127.0.0.1:0"
		case "--agents-listen":
			agents, args[i+1] = args[i+1], "127.0.0.1:0"
		}
	}
	if w.printed == "" {
		return fmt.Errorf("berth dev: --listen is required")
	}
	var stderr bytes.Buffer
	out := &banner{addresses: make(chan []string, 1)}
	cmd := exec.CommandContext(w.t.Context(), berth(w.t), args...)
	cmd.Stdout, cmd.Stderr = out, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	// The kernel kills the child when the thread that started it ends. That thread therefore
	// waits for the child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	}()
	select {
	case found := <-out.addresses:
		w.real = found[1]
		w.addresses = strings.NewReplacer(w.printed, w.real)
		if agents != "" {
			w.addresses = strings.NewReplacer(w.printed, w.real, agents, found[2])
		}
	case err := <-ended:
		return fmt.Errorf("berth dev exited: %v\n%s", err, &stderr)
	case <-time.After(patience):
		return fmt.Errorf("berth dev did not print its address within %v", patience)
	}
	w.t.Cleanup(func() {
		if err := <-ended; w.t.Failed() {
			w.t.Logf("berth dev: %v\n%s", err, &stderr)
		}
	})
	return nil
}

// banner receives the output of berth dev and sends the addresses that it finds: of REST and
// gRPC, and for agents.
type banner struct {
	text      bytes.Buffer
	addresses chan []string
}

var listens = regexp.MustCompile(`(?s)http://([0-9.]+:[0-9]+).*--gateways ([0-9.]+:[0-9]+)\n`)

func (b *banner) Write(p []byte) (int, error) {
	known := listens.Match(b.text.Bytes())
	b.text.Write(p)
	if found := listens.FindStringSubmatch(b.text.String()); found != nil && !known {
		b.addresses <- found
	}
	return len(p), nil
}
