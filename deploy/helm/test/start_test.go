package chart

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// patience is the maximum duration of a test. It matters only on a machine that hangs.
const patience = 2 * time.Minute

// onHost changes a container's flags so that the container's process can run on this
// host. Every address is on loopback, there is no etcd, and the files of a secret are in
// a directory.
func onHost(c corev1.Container, secret, scratch string) []string {
	variable := strings.NewReplacer("$(POD_NAME)", "pod-0", "$(NODE_NAME)", "node-0", "$(POD_IP)", "127.0.0.1")
	address := regexp.MustCompile(`^--(http-|agents-|internal-)?listen=.*`)
	endpoints := regexp.MustCompile(`(--etcd-endpoints=|,)(https://)?[^:]+:\d+`)
	var args []string
	for _, arg := range c.Args {
		arg = variable.Replace(arg)
		arg = address.ReplaceAllString(arg, "--${1}listen=127.0.0.1:0")
		if strings.HasPrefix(arg, "--etcd-endpoints=") {
			arg = endpoints.ReplaceAllString(arg, "${1}${2}127.0.0.1:1")
		}
		arg = strings.Replace(arg, "/etc/berth/tls", secret, 1)
		arg = strings.Replace(arg, "/var/lib/berth-agent", scratch, 1)
		args = append(args, arg)
	}
	return args
}

// TestCommandsStart checks that the rendered commands start, are alive, are not ready
// without etcd, and stop in order on SIGTERM.
func TestCommandsStart(t *testing.T) {
	secret := t.TempDir()
	writeSecret(t, secret)
	for _, set := range []string{"testdata/external-tls.yaml", "testdata/agents.yaml"} {
		for name, template := range decoded(t, set).pods() {
			if name == "berth-etcd" {
				continue
			}
			t.Run(filepath.Base(set)+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := template.Spec.Containers[0]
				http := start(t, onHost(c, secret, t.TempDir()))
				if c.LivenessProbe == nil {
					return // an agent has no health endpoint
				}
				ready := 503
				if name == "berth-gateway" {
					ready = 200
				}
				if got := ask(t, http+c.LivenessProbe.HTTPGet.Path); got != 200 {
					t.Errorf("liveness answers %d", got)
				}
				if got := ask(t, http+c.ReadinessProbe.HTTPGet.Path); got != ready {
					t.Errorf("readiness answers %d without etcd, want %d", got, ready)
				}
			})
		}
	}
}

// start runs the binary until the test ends, and returns the address of its health port.
func start(t *testing.T, args []string) (url string) {
	t.Helper()
	// The context of the test ends before its cleanups, which stop the process.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := exec.CommandContext(ctx, berth, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"} // no variable of the test's own environment
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	lines := bufio.NewScanner(io.TeeReader(stderr, &log))
	lines.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		defer cancel()
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait reports a process that has exited
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("berth %s: %v\n%s", strings.Join(args, " "), err, &log)
		}
	})
	for lines.Scan() {
		var line struct{ Msg, Listen, HTTP string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			return "http://" + line.HTTP
		}
	}
	t.Fatalf("berth %s does not listen: %v\n%s", strings.Join(args, " "), errors.Join(lines.Err(), ctx.Err()), &log)
	return ""
}

func ask(t *testing.T, url string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
