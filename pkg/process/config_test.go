package process_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
)

type config struct {
	process.Service `mapstructure:",squash"`
	Workers         int `mapstructure:"workers" usage:"how many workers"`
}

// run runs a command with the arguments and returns the configuration that it got.
func run(t *testing.T, file string, args ...string) (config, error) {
	t.Helper()
	if file != "" {
		name := filepath.Join(t.TempDir(), "berth.yaml")
		if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", name)
	}
	var got config
	defaults := config{Service: process.ServiceDefaults(7101, 7181), Workers: 1}
	cmd := process.Command("registry", "", defaults, func(_ context.Context, c config) error {
		got = c
		return nil
	})
	cmd.SetArgs(append([]string{}, args...)) // nil would stand for the arguments of the test binary
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return got, cmd.ExecuteContext(t.Context())
}

func TestFlagsBeforeEnvironmentBeforeFileBeforeDefaults(t *testing.T) {
	const file = "workers: 2\nttl: 2s\ncluster: of-file\ngateways: [a:1, b:2]\ninsecure: true\n"
	t.Setenv("BERTH_WORKERS", "3")
	t.Setenv("BERTH_TTL", "3s")
	t.Setenv("BERTH_ETCD_ENDPOINTS", "e:1,f:2")
	got, err := run(t, file, "--workers", "4")
	if err != nil {
		t.Fatal(err)
	}
	want := config{Service: process.ServiceDefaults(7101, 7181)}
	want.Workers = 4                       // from the flag
	want.TTL = 3 * time.Second             // from the environment
	want.Etcd = []string{"e:1", "f:2"}     // from the environment
	want.Cluster = "of-file"               // from the file
	want.Gateways = []string{"a:1", "b:2"} // from the file
	want.Insecure = true                   // from the file
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestErrorsNameTheOption(t *testing.T) {
	for _, c := range []struct{ name, file, arg, want string }{
		{"unknown key", "workerz: 2\n", "", "berth.yaml:1: workerz: unknown key"},
		{"two unknown keys", "zebra: 2\nantelope:\n  colour: 1\n", "", "berth.yaml:2: antelope: unknown key"},
		{"unknown key without a value", "workerz:\n", "", "workerz: unknown key"},
		{"another case", "Workers: 2\n", "", "Workers: unknown key; did you mean workers?"},
		{"the name of the variable", "LOG_LEVEL: warn\n", "", "did you mean log-level?"},
		{"the flag", "--log-level: warn\n", "", "did you mean log-level?"},
		{"a key of the command only", "help: true\n", "", "help"},
		{"wrong type", "workers: many\n", "", "workers"},
		{"not YAML", "workers: [", "", "not valid YAML"},
		{"unknown flag", "", "--workerz=1", "workerz"},
		{"wrong type of a flag", "", "--workers=many", "workers"},
		{"an argument", "", "now", "now"},
		{"no such file", "", "--config=/nowhere/berth.yaml", "/nowhere/berth.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var args []string
			if c.arg != "" {
				args = []string{c.arg}
			}
			_, err := run(t, c.file, args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if rpc.ExitCode(err) != rpc.ExitUsage {
				t.Errorf("exit code %d", rpc.ExitCode(err))
			}
		})
	}
}

func TestTheEnvironmentIsChecked(t *testing.T) {
	t.Setenv("BERTH_WORKERS", "many")
	if _, err := run(t, ""); fault.Of(err).Kind != fault.Invalid || !strings.Contains(err.Error(), "workers") {
		t.Errorf("got %v", err)
	}
}

// Options lists every option with its usage and its environment variable. The reference
// documentation is generated from this list.
func TestOptionsAreListedWithTheirEnvironment(t *testing.T) {
	var names []string
	for _, o := range process.Options(config{Service: process.ServiceDefaults(1, 2), Workers: 1}) {
		if o.Usage == "" {
			t.Errorf("%s has no usage", o.Name)
		}
		names = append(names, o.Name+" "+o.Env)
	}
	if first, last := names[0], names[len(names)-1]; first != "cluster BERTH_CLUSTER" || last != "workers BERTH_WORKERS" {
		t.Errorf("from %s to %s", first, last)
	}
}

func TestSecurityOptionsGoTogether(t *testing.T) {
	for want, c := range map[string]process.Common{
		"--tls-key":   {Security: process.Security{TLSCert: "a", TLSCA: "a"}},
		"--tls-ca":    {Security: process.Security{TLSCert: "a", TLSKey: "a"}},
		"/nowhere/a":  {Security: process.Security{TLSCert: "/nowhere/a", TLSKey: "/nowhere/b", TLSCA: "/nowhere/c"}},
		"--etcd-key":  {EtcdCert: "a", EtcdCA: "a"},
		"--access":    {Access: "/nowhere/a"},
		"--audit-log": {Security: process.Security{AuditLog: "/nowhere/a"}},
	} {
		if _, err := c.Secure(identity.Service, quiet); fault.Of(err).Kind != fault.Invalid ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s, err := process.Common{}.Secure(identity.Service, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Client(identity.Gateway) != nil {
		t.Error("TLS without a certificate")
	}
	for _, c := range []process.Common{{EtcdUser: "a"}, {EtcdPasswordFile: "a"},
		{EtcdUser: "a", EtcdPasswordFile: "/nowhere/a"}} {
		if _, err := s.Etcd(c); fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A token that is unknown is rejected. A token whose issuer does not answer can be repeated.
func TestOperationsWithoutTheIssuer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(file, []byte("issuers: [{issuer: 'https://127.0.0.1:1', audience: berth, "+
		"grants: [{claim: a, value: b, role: viewer}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := process.Common{Cluster: "default", Access: file}.Secure(identity.Service, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	handler := s.Operations(http.NotFoundHandler()).Handler
	for issuer, want := range map[string]int{"https://127.0.0.1:1": http.StatusServiceUnavailable,
		"https://127.0.0.1:2": http.StatusForbidden} {
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", "Bearer e30."+
			base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"`+issuer+`"}`))+".e30")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != want || strings.Contains(answer.Body.String(), "refused") {
			t.Errorf("%s: %d, %s", issuer, answer.Code, answer.Body)
		}
	}
}

// Options for etcd that would have no effect, and secrets that would cross the network in plain
// text, are refused with the name of the option.
func TestPlainEtcdIsRefused(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := process.Common{}.Secure(identity.Service, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const remote = "--etcd-endpoints etcd-1:2379"
	required, prefer := process.Security{TLSCert: "c"}, process.Security{TLSCert: "c", TLSMode: "prefer"}
	for _, c := range []struct {
		endpoints string
		config    process.Common
		want      string // in the error
	}{
		{"127.0.0.1:2379", process.Common{EtcdCert: "c"}, "--etcd-cert has no effect, because --etcd-endpoints 127.0.0.1:2379 "},
		{"https://etcd-0:2379,etcd-1:2379", process.Common{EtcdKey: "k"}, "--etcd-key has no effect, because " + remote},
		{"http://etcd-1:2379", process.Common{EtcdCA: "a", Security: process.Security{Insecure: true}}, "--etcd-ca has no effect"},
		{"https://etcd-0:2379", process.Common{EtcdCert: "c", EtcdKey: "k", EtcdCA: "a"}, ""},

		{"https://etcd-0:2379,etcd-1:2379", process.Common{EtcdUser: "u", EtcdPasswordFile: password},
			"--etcd-user and --etcd-password-file would be sent in plain text to " + remote},
		{"http://10.0.0.7:2379", process.Common{EtcdUser: "u", EtcdPasswordFile: password, Security: prefer}, "--etcd-password-file"},
		{"https://etcd-0:2379", process.Common{EtcdUser: "u", EtcdPasswordFile: password}, ""},
		{"127.0.0.1:2379,http://localhost:2379,[::1]:2379", process.Common{EtcdUser: "u", EtcdPasswordFile: password}, ""},
		{"etcd-1:2379", process.Common{EtcdUser: "u", EtcdPasswordFile: password, Security: process.Security{Insecure: true}}, ""},

		{"https://etcd-0:2379,etcd-1:2379", process.Common{Security: required}, remote + " is beyond loopback and has no TLS"},
		{"http://etcd-1:2379", process.Common{Security: required}, "is beyond loopback and has no TLS"},
		{"127.0.0.1:2379,unix:///run/etcd", process.Common{Security: required}, ""},
		{"etcd-1:2379", process.Common{Security: process.Security{TLSCert: "c", Insecure: true}}, ""},
		{"etcd-1:2379", process.Common{Security: prefer}, "is beyond loopback and has no TLS"},
		{"etcd-1:2379", process.Common{}, "is beyond loopback and has no TLS"},
	} {
		c.config.Etcd = strings.Split(c.endpoints, ",")
		log.Reset()
		_, err := s.Etcd(c.config)
		switch {
		case c.want == "" && err != nil, c.want != "" && (fault.Of(err) == nil || fault.Of(err).Kind != fault.Invalid ||
			!strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		case err == nil && c.config.Insecure != strings.Contains(log.String(), "level=WARN"):
			t.Errorf("%+v: the log is %q", c.config, &log)
		}
	}
}

func TestReplicaIDsDiffer(t *testing.T) {
	var c process.Common
	if first, second := c.ReplicaID(), c.ReplicaID(); first == second {
		t.Error("two replicas have one id")
	}
	c.Replica = "a"
	if c.ReplicaID() != "a" {
		t.Error("the configured id is not used")
	}
}

// If a value has the wrong type, the error names the option and the expected type. This
// holds for flags, the environment and the file.
func TestWrongTypeErrorNamesTheExpectedType(t *testing.T) {
	refused := func(want string, err error) {
		t.Helper()
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || !strings.HasPrefix(f.Message, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err := run(t, "", "--ttl", "soon")
	refused(`--ttl: must be a duration such as 90s, 10m or 1h30m, got "soon"`, err)
	_, err = run(t, "", "--workers", "many")
	refused(`--workers: must be a whole number, got "many"`, err)
	_, err = run(t, "workers: many\n")
	if err == nil || !strings.Contains(err.Error(), `berth.yaml:1: workers: must be a whole number, got "many"`) {
		t.Errorf("%v", err)
	}
	t.Setenv("BERTH_TTL", "soon")
	_, err = run(t, "")
	refused(`BERTH_TTL: ttl: must be a duration such as 90s, 10m or 1h30m, got "soon"`, err)
}

// Every process refuses at start a cluster name that would leave its prefix in etcd. This
// holds for options, the environment and the file.
func TestClusterNameIsValidated(t *testing.T) {
	load := func(args ...string) error {
		config := process.Defaults(0, 0)
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		process.AddFlags(flags, config)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		return process.Load(flags, "", &config)
	}
	for _, name := range []string{"default", "a", "Prod-1.eu_west", strings.Repeat("x", 128)} {
		if err := load("--cluster", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "a/b", "../x", ".", "..", "-a", "a b", "a\x00", "ä", strings.Repeat("x", 129)} {
		err := load("--cluster", name)
		if !fault.Is(err, fault.ReasonBadName) || !strings.HasPrefix(err.Error(), "--cluster: must be") {
			t.Errorf("%q: %v", name, err)
		}
	}
	t.Setenv("BERTH_CLUSTER", "a/b")
	if err := load(); !fault.Is(err, fault.ReasonBadName) {
		t.Errorf("by the environment: %v", err)
	}
}

// The items of a list are trimmed and checked, whatever their source. The second gateway of "a:1, b:2"
// was never reached.
func TestItemsOfListsAreTrimmedAndChecked(t *testing.T) {
	want := []string{"a:1", "b:2"}
	for _, source := range []string{"flag", "repeated flag", "variable", "list", "text"} {
		for _, c := range []struct{ items, problem string }{
			{"a:1, b:2", ""}, {" a:1 ,b:2 ", ""},
			{"a:1,b", `must be host:port, got "b"`}, {"a:1,:2", `must be host:port: the host is missing, got ":2"`},
			{"a:1,b:0", `must be host:port with a port between 1 and 65535, got "b:0"`},
			{"a:1,b:65536", `must be host:port with a port between 1 and 65535, got "b:65536"`},
			{"a:1,b c:2", `must be host:port: this host cannot exist, got "b c:2"`},
			{"a:1,http://b:2", `must be host:port without a scheme, got "http://b:2"`},
			{"a:1,,b:2", "item 2 of the list is empty: remove it"}, {"a:1, ", "item 2 of the list is empty: remove it"},
		} {
			var file string
			var args []string
			first, second, _ := strings.Cut(c.items, ",")
			place := "--gateways: "
			switch source {
			case "flag":
				args = []string{"--gateways", c.items}
			case "repeated flag":
				args = []string{"--gateways", first, "--gateways=" + second}
			case "variable":
				t.Setenv("BERTH_GATEWAYS", c.items)
				place = "BERTH_GATEWAYS: gateways: "
			case "list":
				file, place = "gateways: ['"+strings.ReplaceAll(c.items, ",", "', '")+"']\n", "berth.yaml:1: gateways: "
			case "text":
				file, place = "gateways: '"+c.items+"'\n", "berth.yaml:1: gateways: "
			}
			got, err := run(t, file, args...)
			switch {
			case c.problem == "" && (err != nil || !cmp.Equal(got.Gateways, want)):
				t.Errorf("%s %q: %q, %v", source, c.items, got.Gateways, err)
			case c.problem != "" && (err == nil || !strings.Contains(err.Error(), place+c.problem)):
				t.Errorf("%s %q: %v, want %s%s", source, c.items, err, place, c.problem)
			}
		}
		t.Setenv("BERTH_GATEWAYS", "")
	}
	if got, err := process.CheckList("hosts", "", []string{" a", "b\t"}); err != nil || !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := process.CheckList("hosts", "", []string{"a", " "}); err == nil || fault.Of(err).Fields[0].Name != "--hosts" {
		t.Errorf("%v", err)
	}
}

// All mistakes are reported at once, in the order of their lines.
func TestAllMistakesAreReported(t *testing.T) {
	_, err := run(t, "workers: 2.5\nttl: 0s\nlog-level: loud\ncolour: red\n", "--stop-timeout=-1s")
	f := fault.Of(err)
	var names []string
	for _, field := range f.Fields {
		names = append(names, field.Name)
	}
	if want := []string{"--stop-timeout", "workers", "ttl", "log-level", "colour"}; !cmp.Equal(names, want) {
		t.Errorf("%v: %v, want %v", err, names, want)
	}
}
