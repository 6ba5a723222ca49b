package chart

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"berth.dev/pkg/certs"
)

// patience is the maximum duration of a test. It matters only on a machine that hangs.
const patience = 2 * time.Minute

// onHost changes a container's flags so that the container's process can run on this
// host. Every address is on loopback, there is no etcd, and the volumes are directories.
func onHost(t *testing.T, r *release, c *cluster, template corev1.PodTemplateSpec) []string {
	t.Helper()
	dirs := map[string]string{}
	for _, mount := range template.Spec.Containers[0].VolumeMounts {
		volume, _ := volumeAt(t, template, mount.MountPath)
		dirs[mount.MountPath] = c.volume(t, r, volume)
	}
	address := regexp.MustCompile(`^--(http-|agents-|internal-)?listen=.*`)
	endpoints := regexp.MustCompile(`(--etcd-endpoints=|,)(https://)?[^:]+:\d+`)
	var args []string
	for _, arg := range template.Spec.Containers[0].Args {
		arg = expanded(arg)
		arg = address.ReplaceAllString(arg, "--${1}listen=127.0.0.1:0")
		if strings.HasPrefix(arg, "--etcd-endpoints=") {
			arg = endpoints.ReplaceAllString(arg, "${1}${2}127.0.0.1:1")
		}
		switch name, _, _ := strings.Cut(arg, "="); {
		case name == "--worker-uids" && os.Geteuid() != 0:
			continue
		case name == "--etcd-user", name == "--etcd-password-file":
			continue // with a password, a process does not start before etcd
		}
		for at, dir := range dirs {
			if rest, is := strings.CutPrefix(value(arg), at); is && (rest == "" || rest[0] == '/') {
				arg = strings.Replace(arg, at, dir, 1)
				break
			}
		}
		args = append(args, arg)
	}
	return args
}

// value returns the value of a flag with a value.
func value(arg string) string {
	_, value, _ := strings.Cut(arg, "=")
	return value
}

// TestCommandsStart checks that the rendered commands start with the certificates that the
// release names, are alive, are not ready without etcd, show their metrics only to
// Prometheus, and stop in order on SIGTERM.
func TestCommandsStart(t *testing.T) {
	for _, set := range []string{"tls", "own-certificates", "issuer", "agents"} {
		r, c := decoded(t, "testdata/"+set+".yaml"), newCluster(t)
		for name, template := range r.pods() {
			if name == "berth-etcd" {
				continue
			}
			args := onHost(t, r, c, template)
			t.Run(set+"/"+name, func(t *testing.T) {
				t.Parallel()
				address := start(t, args)
				container := template.Spec.Containers[0]
				ready := 503
				if name == "berth-gateway" {
					ready = 200
				}
				for probe, want := range map[*corev1.Probe]int{container.LivenessProbe: 200, container.ReadinessProbe: ready} {
					if probe == nil {
						continue // an agent has no liveness probe
					}
					get := *probe.HTTPGet
					// Like the kubelet, the client has no certificate and does not check the server's.
					config := &tls.Config{InsecureSkipVerify: true}
					if got := ask(t, strings.ToLower(string(get.Scheme)), address, get.Path, config, ""); got != want {
						t.Errorf("%s answers %d, want %d", get.Path, got, want)
					}
				}
				if r.encrypted() {
					if got := ask(t, "https", address, "/metrics", &tls.Config{InsecureSkipVerify: true}, ""); got != 403 {
						t.Errorf("the metrics answer %d to a caller without a certificate", got)
					}
				}
				if monitor, monitored := find[*podMonitor](r, "berth"); monitored && name != "berth-agent" {
					scheme, config, token := c.prometheus(t, r, monitor.Spec.PodMetricsEndpoints[0])
					if got := ask(t, scheme, address, "/metrics", config, token); got != 200 {
						t.Errorf("the metrics answer %d to Prometheus", got)
					}
				}
			})
		}
	}
}

// prometheus returns how the Prometheus operator configures the scrapes of an endpoint.
func (c *cluster) prometheus(t *testing.T, r *release, e metricsEndpoint) (scheme string, config *tls.Config,
	token string) {
	t.Helper()
	config = &tls.Config{ServerName: e.TLSConfig.ServerName, RootCAs: x509.NewCertPool()}
	if _, issued := r.certificateIn(e.TLSConfig.CA.Secret.Name); !issued && e.TLSConfig.CA.Secret.Name != "gateway-tls" {
		t.Errorf("no secret %s has the authority", e.TLSConfig.CA.Secret.Name)
	}
	authority, err := os.ReadFile(filepath.Join(c.dir, certs.AuthorityCert))
	if err != nil || !config.RootCAs.AppendCertsFromPEM(authority) {
		t.Fatal(err)
	}
	if e.Authorization != nil {
		return e.Scheme, config, prometheusToken
	}
	issued, found := r.certificateIn(e.TLSConfig.Cert.Secret.Name)
	if !found || e.TLSConfig.KeySecret.Name != issued.Spec.SecretName {
		t.Fatalf("Prometheus has no certificate: %+v", e.TLSConfig)
	}
	dir := c.write(t, issued.Spec.URIs[0], nil)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, e.TLSConfig.Cert.Secret.Key),
		filepath.Join(dir, e.TLSConfig.KeySecret.Key))
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{pair}
	return e.Scheme, config, ""
}

// start runs the binary until the test ends, and returns the address of its health port.
func start(t *testing.T, args []string) (address string) {
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
			return line.HTTP
		}
	}
	t.Fatalf("berth %s does not listen: %v\n%s", strings.Join(args, " "), errors.Join(lines.Err(), ctx.Err()), &log)
	return ""
}

// ask returns the status of an answer.
func ask(t *testing.T, scheme, address, path string, config *tls.Config, token string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
