package docs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// slack is the factor by which documented times may be exceeded here, on a machine with
	// other load.
	slack = 10
	// patience bounds steps without a documented time. Only a failure takes so long.
	patience = time.Minute
	lookEach = 20 * time.Millisecond
)

// TestAPIDocument executes the commands of the document in their order against a real
// Berth.
func TestAPIDocument(t *testing.T) {
	w := walk{t: t, vars: map[string]string{}, client: &http.Client{Transport: &http.Transport{}}}
	defer w.client.CloseIdleConnections()
	steps, err := parse(read(t, "docs/api.md"))
	if err != nil {
		t.Fatalf("docs/api.md: %v", err)
	}
	if len(steps) < 20 {
		t.Fatalf("docs/api.md has only %d commands", len(steps))
	}
	for _, s := range steps {
		if err := w.do(s); err != nil {
			t.Fatalf("docs/api.md:%d: %s\n%v", s.line, s.command, err)
		}
	}
}

// walk is a reader who types the commands of the document.
type walk struct {
	t    *testing.T
	vars map[string]string
	// said is the address in the document, real the actual one.
	said, real string
	client     *http.Client
}

func (w *walk) do(s step) error {
	if name, value, ok := assignment(s.command); ok {
		w.vars[name] = value
		return nil
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
		call.url = strings.Replace(call.url, w.said, w.real, 1)
		return w.curl(s, call)
	case len(args) > 1 && args[0] == "berth" && args[1] == "dev":
		return w.dev(args[1:])
	}
	return fmt.Errorf("%s is no command that this test knows", args[0])
}

// curl makes the call once, or until it has the documented answer if the document gives it
// time.
func (w *walk) curl(s step, call curl) error {
	limit, once := patience, true
	for _, e := range s.expect {
		if e.within > 0 {
			limit, once = slack*e.within, false
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	missing, answer := "an answer", ""
	for {
		got, want, err := w.ask(ctx, s, call)
		switch {
		case err == nil && want == "":
			return nil
		case once:
			return fmt.Errorf("wants %s\ngot   %s (%v)", want, got, err)
		case err == nil:
			// The time limit may cut the last answer short.
			missing, answer = want, got
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %s\ngot   %s (%v)", limit, missing, answer, err)
		}
	}
}

// ask makes the call once and reads its answer until it has everything that is expected:
// streams do not end.
func (w *walk) ask(ctx context.Context, s step, call curl) (answer, missing string, err error) {
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
		return string(body), res.Status, fmt.Errorf("the document does not tell of this error")
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

// dev starts `berth dev` as documented, but on a free port, and waits until it prints its
// address.
func (w *walk) dev(args []string) error {
	for i, arg := range args {
		if arg == "--listen" && i+1 < len(args) {
			w.said = args[i+1]
			args[i+1] = "127.0.0.1:0"
		}
	}
	if w.said == "" {
		return fmt.Errorf("berth dev needs --listen here")
	}
	var stderr bytes.Buffer
	out := &banner{address: make(chan string, 1)}
	cmd := exec.CommandContext(w.t.Context(), berth(w.t), args...)
	cmd.Stdout, cmd.Stderr = out, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	// The kernel kills the child when the thread that started it ends, so that the thread
	// waits for the child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	}()
	select {
	case w.real = <-out.address:
	case err := <-ended:
		return fmt.Errorf("berth dev ended: %v\n%s", err, &stderr)
	case <-time.After(patience):
		return fmt.Errorf("berth dev does not say where it listens")
	}
	w.t.Cleanup(func() {
		if err := <-ended; w.t.Failed() {
			w.t.Logf("berth dev: %v\n%s", err, &stderr)
		}
	})
	return nil
}

// banner waits for the address in the output of berth dev.
type banner struct {
	text    bytes.Buffer
	address chan string
}

var listens = regexp.MustCompile(`http://([0-9.]+:[0-9]+)`)

func (b *banner) Write(p []byte) (int, error) {
	told := listens.Match(b.text.Bytes())
	b.text.Write(p)
	if found := listens.FindSubmatch(b.text.Bytes()); found != nil && !told {
		b.address <- string(found[1])
	}
	return len(p), nil
}
