package dev

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
)

func TestDevBoundsItsHistory(t *testing.T) {
	if !(Config{}).cluster(security{}).Bounded {
		t.Error("berth dev starts a cluster that is not bounded")
	}
}

func TestDevRefusesOptions(t *testing.T) {
	for _, option := range []string{"--executors=-1", "--agents=-1", "--slots=-1", "--slots=0", "--starts=-1",
		"--starts=0", "--listen=", "--agents-listen=a", "--internal-listen=0.0.0.0:0"} {
		cmd := Command()
		cmd.SetArgs([]string{option})
		f := fault.Of(cmd.ExecuteContext(t.Context()))
		if name, _, _ := strings.Cut(option, "="); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 ||
			f.Fields[0].Name != name {
			t.Errorf("%s: %v", option, f)
		}
	}
}

// Zero executors are none, whatever the source of the number. Without a number there are four, or
// only agents.
func TestZeroExecutorsAreNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dev.yaml")
	if err := os.WriteFile(file, []byte("executors: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     []string
		variable string
		want     int
	}{
		{nil, "", 4}, {[]string{"--agents=2"}, "", 0}, {[]string{"--executors=0"}, "", 0}, {nil, "0", 0},
		{[]string{"--config", file}, "", 0}, {[]string{"--executors=3", "--agents=2"}, "0", 3}, {nil, "5", 5},
	} {
		t.Setenv("BERTH_EXECUTORS", c.variable)
		var got Config
		cmd := command(func(_ context.Context, config Config, _ io.Writer) error {
			got = config
			return nil
		})
		cmd.SetArgs(append([]string{}, c.args...))
		if err := cmd.ExecuteContext(t.Context()); err != nil || got.Executors != c.want {
			t.Errorf("%v, %q: %d executors, want %d: %v", c.args, c.variable, got.Executors, c.want, err)
		}
	}
}

// started runs `berth dev` until the test calls stop. It returns what the
// command prints at its start, and stop returns what it prints at its end.
func started(t *testing.T, config Config) (text string, stop func() string) {
	t.Helper()
	config.Listen, config.AgentsListen, config.InternalListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	config.Slots, config.Executors, config.LogFormat, config.LogLevel = 1, 2, "text", "error"
	config.Tracing = process.Defaults(0, 0).Tracing
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, config, write)
		write.CloseWithError(err)
		ended <- err
	}()
	stop = func() string {
		cancel()
		last, err := io.ReadAll(read)
		if err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return string(last)
	}
	var b strings.Builder
	part := make([]byte, 4096)
	for !strings.Contains(b.String(), "Press Ctrl-C") {
		n, err := read.Read(part)
		if b.Write(part[:n]); err != nil {
			cancel()
			t.Fatalf("%v: %s", err, &b)
		}
	}
	return b.String(), stop
}

// TestPrintedCommandsWork runs the printed commands of `berth dev --tls` with a shell. Then
// it starts `berth dev --tls` again with the same data, whose authority has not changed.
func TestPrintedCommandsWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("this host has no curl")
	}
	t.Chdir(t.TempDir())
	config := Config{TLS: true, DataDir: "data of a test", AuditLog: filepath.Join(t.TempDir(), "audit")}
	text, stop := started(t, config)
	reserved := shell(t, text, "curl", "-X PUT")
	if last, want := stop(), "Berth has stopped. Its data is in data of a test.\n"; last != want {
		t.Errorf("at its end, berth dev prints %q, want %q", last, want)
	}
	if !strings.Contains(reserved, `"state":"QUEUED"`) {
		t.Errorf("the reservation is %s", reserved)
	}
	if log, err := os.ReadFile(config.AuditLog); err != nil ||
		!strings.Contains(string(log), `"caller":"berth://default/operator/admin"`) {
		t.Errorf("the audit log is %q, %v", log, err)
	}
	authority, err := os.ReadFile(filepath.Join(config.DataDir, "certs", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}

	text, stop = started(t, config)
	defer stop()
	if got := shell(t, text, "curl", "-X PUT"); !strings.Contains(got, `"uid":`) {
		t.Errorf("after a restart, the reservation is %s", got)
	}
	if now, err := os.ReadFile(filepath.Join(config.DataDir, "certs", "ca.crt")); err != nil ||
		string(now) != string(authority) {
		t.Errorf("the restart has replaced the authority: %v", err)
	}
}

// shell runs the exports in a text and its line that contains all words, and returns the
// output.
func shell(t *testing.T, text string, words ...string) string {
	t.Helper()
	var script strings.Builder
	for line := range strings.Lines(text) {
		chosen := true
		for _, word := range words {
			chosen = chosen && strings.Contains(line, word)
		}
		if chosen || strings.Contains(line, "export ") {
			script.WriteString(line)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script.String())
	cmd.Dir = t.TempDir() // another directory, as in another terminal
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, &script, &stderr)
	}
	return string(out)
}

// TestGatewayServesTheMetricsOfAllParts scrapes the gateway of `berth dev` after the
// registry has answered a request.
func TestGatewayServesTheMetricsOfAllParts(t *testing.T) {
	text, stop := started(t, Config{})
	defer stop()
	url := "http://" + regexp.MustCompile(`REST and gRPC +(?:http://)?(\S+)`).FindStringSubmatch(text)[1]
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/v1/jobs/hello/stages/map/reservation",
		strings.NewReader(`{"count": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	reserved, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	reserved.Body.Close()
	if reserved.StatusCode != http.StatusOK {
		t.Fatal(reserved.Status)
	}
	for _, metric := range []string{
		`berth_leader{cluster="default",part="registry",`, `berth_leader{cluster="default",part="executor-state",`,
		`berth_leader{cluster="default",part="assigner",`,
		`berth_gateway_event_streams{cluster="default",part="gateway"}`,
		`berth_registry_findings{cluster="default",kind="HEAD_WAITS",part="registry"}`,
		`rpc_client_call_duration_seconds_count{cluster="default",part="gateway",`, `berth_build_info{`,
	} {
		answer, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v: %s", answer.Status, err, body)
		}
		if !strings.Contains(string(body), "\n"+metric) {
			t.Errorf("no %s in\n%s", metric, body)
		}
	}
}

// TestPlainTextPrintsNoOptions checks the lines that depend on --tls.
func TestPlainTextPrintsNoOptions(t *testing.T) {
	text, stop := started(t, Config{})
	stop()
	if strings.Contains(text, "tls") || strings.Contains(text, "https") || strings.Contains(text, "TLS") ||
		!strings.Contains(text, "\n  curl -X PUT $BERTH_GATEWAY/v1/") || strings.Contains(text, "BERTH_GATEWAY=http") {
		t.Errorf("without --tls:\n%s", text)
	}
}

func TestQuotedFiles(t *testing.T) {
	for _, name := range []string{"/tmp/x/ca.crt", "/tmp/a b/c", "/tmp/it's/$HOME", "*"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoted(name)).Output()
		if err != nil || string(out) != name {
			t.Errorf("a shell reads %s as %q: %v", quoted(name), out, err)
		}
	}
}
