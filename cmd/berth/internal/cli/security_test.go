package cli

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
	"berth.dev/testkit/porttest"
)

// secured is a fake behind TLS and the table of roles, and the files of its callers.
type secured struct {
	*fake
	authority        *certs.Authority
	ca               string
	viewer, operator certs.Files
	// token is a file with the bearer token of an operator.
	token string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	dir := t.TempDir()
	authority, err := certs.Init(dir, 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(role identity.Role) certs.Files {
		files, err := authority.Issue(identity.Identity{Cluster: "default", Role: role, Name: "test"},
			[]string{"127.0.0.1", "0.0.0.0"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	s := &secured{
		authority: authority,
		viewer:    issue(identity.Viewer), operator: issue(identity.Operator),
		token: filepath.Join(dir, "token"),
	}
	files, log := issue(identity.Gateway), slog.New(slog.DiscardHandler)
	s.ca = files.CA
	encrypted, err := transport.Open(transport.Config{Cert: files.Cert, Key: files.Key, CA: files.CA,
		Roles: identity.Gateway, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(encrypted.Close)
	write(t, s.token, "secret\n")
	list := filepath.Join(dir, "access.yaml")
	write(t, list, fmt.Sprintf("tokens: [{role: operator, name: bot, sha256: %x}]", sha256.Sum256([]byte("secret"))))
	accepted, err := access.Open(list, "default", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(accepted.Close)
	guard := &access.Guard{Listener: access.Public, Cluster: "default", Access: accepted, Log: log}
	s.fake = serveFake(t, func(l net.Listener) net.Listener { return encrypted.Listener(l, "--listen", true) },
		append(guard.ServerOptions(), grpc.Creds(transport.Credentials()))...)
	return s
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runWith runs a command line with environment variables.
func runWith(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	root := New(Streams{In: strings.NewReader(""), Out: &out, Err: &errors, Now: time.Now,
		Env: func(name string) string { return env[name] }})
	code = Run(t.Context(), root, args)
	return code, out.String(), errors.String()
}

// TestCallersProveTheirRole checks each way to set the certificate and the token.
func TestCallersProveTheirRole(t *testing.T) {
	s := newSecured(t)
	s.do(t, []string{"executors", "ex-1"})
	url := "https://" + s.address
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"certificate": {nil, []string{"--gateway", s.address, "--tls-ca", s.ca, "--tls-cert", s.operator.Cert, "--tls-key",
			s.operator.Key}},
		"certificate in the environment": {map[string]string{"BERTH_GATEWAY": url, "BERTH_TLS_CA": s.ca,
			"BERTH_TLS_CERT": s.operator.Cert, "BERTH_TLS_KEY": s.operator.Key}, nil},
		"token": {nil, []string{"--gateway", url, "--tls-ca", s.ca, "--token-file", s.token}},
		"token in the environment": {map[string]string{"BERTH_GATEWAY": url, "BERTH_TLS_CA": s.ca,
			"BERTH_TOKEN_FILE": s.token}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := runWith(t, c.env, append([]string{"drain", "ex-1"}, c.args...)...)
			if code != rpc.ExitDone || stderr != "" {
				t.Errorf("exit %d: %s%s", code, out, stderr)
			}
		})
	}
}

func TestARejectedCallNamesTheRole(t *testing.T) {
	s := newSecured(t)
	s.do(t, []string{"executors", "ex-1", "ex-2"})
	tls := []string{"--gateway", s.address, "--tls-ca", s.ca, "--timeout", "1m"}
	viewer := append(slices.Clone(tls), "--tls-cert", s.viewer.Cert, "--tls-key", s.viewer.Key)
	const denied = "; the caller berth://default/viewer/test has the role viewer (PERMISSION_DENIED)\n"
	for _, c := range []struct {
		line string
		with []string
		want string
	}{
		{"drain ex-1", viewer, "berth: ex-1: berth.v1.Executors/DrainExecutor requires the role operator" + denied},
		{"drain ex-1 ex-2", viewer, "berth: ex-1: berth.v1.Executors/DrainExecutor requires the role operator" + denied},
		{"disable ex-1", viewer, "berth: berth.v1.Executors/DisableExecutors requires the role operator" + denied},
		{"cancel a", viewer, "berth: berth.v1.Reservations/CancelJob requires the role job or operator" + denied},
		{"mark-ready", viewer, "berth: berth.v1.Reservations/MarkReady requires the role operator" + denied},
		{"get reservations", tls, "berth: berth.v1.Reservations/ListReservations requires the role job, viewer or operator; " +
			"the caller has no certificate and no bearer token (PERMISSION_DENIED)\n" +
			"  hint: prove your role with --tls-cert and --tls-key, or with --token-file\n"},
	} {
		code, out, stderr := runWith(t, nil, append(strings.Fields(c.line), c.with...)...)
		if code != rpc.ExitFailed || out != "" || stderr != c.want {
			t.Errorf("%s: exit %d: %s%s", c.line, code, out, stderr)
		}
	}
	if code, _, stderr := runWith(t, nil, append(viewer, "get", "reservations")...); code != rpc.ExitDone {
		t.Errorf("a viewer cannot list reservations: exit %d: %s", code, stderr)
	}
}

func TestInvalidSecurityOptions(t *testing.T) {
	s := newSecured(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tls-cert", s.viewer.Cert}, "berth: --tls-cert and --tls-key must be set together"},
		{[]string{"--tls-ca", s.token}, "berth: --tls-ca: " + s.token + " contains no certificate"},
		{[]string{"--tls-ca", "missing.pem"}, "berth: cannot use --tls-ca: open missing.pem: "},
		{[]string{"--token-file", s.token}, "berth: --token-file: the token is sent only with TLS: use --gateway https://HOST:PORT or --tls-ca"},
		{[]string{"--tls-ca", s.ca, "--token-file", "missing"}, "berth: cannot use --token-file: open missing: "},
		{[]string{"--tls-ca", s.ca, "--gateway", "http://" + s.address}, "berth: gateway: "},
	} {
		for _, command := range []string{"get leaders", "doctor"} {
			code, out, stderr := runWith(t, nil, append(strings.Fields(command), c.args...)...)
			if code != rpc.ExitUsage || out != "" || !strings.HasPrefix(stderr, c.want) {
				t.Errorf("%s %v: exit %d: %s%s", command, c.args, code, out, stderr)
			}
		}
	}
}

// TestTLSOfOnlyOneSideHasAHint checks a command that calls a gateway with TLS in plain text,
// and the other way round. The first failure ends the command.
func TestTLSOfOnlyOneSideHasAHint(t *testing.T) {
	s, plain := newSecured(t), newFake(t)
	for _, c := range []struct {
		args         []string
		notice, last string
	}{
		{
			[]string{"--gateway", s.address}, "the gateway closed the connection: it may require TLS",
			"  hint: call with TLS: set --tls-ca, or use --gateway https://HOST:PORT\n",
		},
		{
			[]string{"--gateway", plain.address, "--tls-ca", s.ca},
			"the gateway answers in plain text, and the client calls with TLS",
			"  hint: call in plain text: use --gateway http://HOST:PORT without --tls-ca, --tls-cert and --token-file\n",
		},
	} {
		unreached(t, append(c.args, "get", "leaders"), c.notice, c.last)
	}
}

// unreached runs a command until its timeout is long enough for the notice that no gateway answers, and for the
// error after it, with a hint.
func unreached(t *testing.T, args []string, notice, hint string) {
	t.Helper()
	for timeout := 150 * time.Millisecond; ; timeout *= 4 {
		code, out, stderr := runWith(t, nil, append(args, "--timeout", timeout.String())...)
		if code == rpc.ExitUnavailable && out == "" && strings.Count(stderr, notice) == 2 &&
			strings.Contains(stderr, hint) {
			return
		}
		if timeout > 5*time.Second {
			t.Errorf("%v: exit %d: %s%s", args, code, out, stderr)
			return
		}
	}
}

// TestCertificatesThatAreRefusedHaveAHint checks that each wrong certificate names its option, its file, and
// what is wrong.
func TestCertificatesThatAreRefusedHaveAHint(t *testing.T) {
	s := newSecured(t)
	other, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(authority *certs.Authority, cluster string, hosts ...string) certs.Files {
		files, err := authority.Issue(identity.Identity{Cluster: cluster, Role: identity.Viewer, Name: cluster}, hosts,
			time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	foreign, elsewhere := issue(other, "default"), issue(s.authority, "other")
	_, port, _ := net.SplitHostPort(s.address)
	at := func(gateway, ca string, files certs.Files) []string {
		return []string{"get", "leaders", "--gateway", gateway, "--tls-ca", ca, "--tls-cert", files.Cert, "--tls-key",
			files.Key}
	}
	for _, c := range []struct {
		args         []string
		notice, hint string
	}{
		{at(s.address, s.ca, foreign), "refused the certificate of the client: unknown certificate authority",
			"the certificate in " + foreign.Cert + " (--tls-cert) was signed by "},
		{at(s.address, s.ca, elsewhere), "refused the certificate of the client: bad certificate",
			"the certificate in " + elsewhere.Cert + " (--tls-cert) has the identity berth://other/viewer/other: "},
		{at(s.address, foreign.CA, s.viewer), "signed by unknown authority",
			"no authority in " + foreign.CA + " (--tls-ca) has signed the certificate of the gateway: "},
		{[]string{"get", "leaders", "--gateway", "https://" + s.address}, "certificate signed by unknown authority",
			"no authority of this host has signed the certificate of the gateway: set --tls-ca "},
		{at("localhost:"+port, s.ca, s.viewer), "wanted to match localhost", "name the gateway in --gateway as its certificate does"},
	} {
		unreached(t, c.args, c.notice, "  hint: "+c.hint)
	}
	for _, c := range []struct {
		from, valid time.Duration
		want        string
	}{{-2 * time.Hour, -time.Hour, "expired at "}, {time.Hour, 2 * time.Hour, "is not valid before "}} {
		files, err := s.authority.IssueFrom(identity.Identity{Cluster: "default", Role: identity.Viewer, Name: "old"}, nil,
			time.Now().Add(c.from), c.valid)
		if err != nil {
			t.Fatal(err)
		}
		code, _, stderr := runWith(t, nil, at(s.address, s.ca, files)...)
		if want := "berth: --tls-cert: the certificate in " + files.Cert + " " + c.want; code != rpc.ExitUsage ||
			!strings.HasPrefix(stderr, want) {
			t.Errorf("exit %d: %s", code, stderr)
		}
	}
}

// TestContextWithTLS checks that the files of a context prove the role of the caller.
func TestContextWithTLS(t *testing.T) {
	s := newSecured(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	env := map[string]string{"BERTH_CONTEXTS": path}
	for _, args := range [][]string{
		{"config", "set", "tls", "--gateway", "https://" + s.address, "--tls-ca", s.ca, "--tls-cert", s.viewer.Cert,
			"--tls-key", s.viewer.Key},
		{"config", "set", "token", "--gateway", s.address, "--tls-ca", s.ca, "--token-file", s.token},
		{"config", "use", "tls"},
		{"get", "leaders"},
		{"get", "leaders", "--context", "token"},
	} {
		if code, _, stderr := runWith(t, env, args...); code != rpc.ExitDone {
			t.Fatalf("%q: exit %d: %s", args, code, stderr)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration file is %v (%v)", info.Mode(), err)
	}
	// A gateway of the context is used with the credentials of the context.
	code, _, stderr := runWith(t, env, "get", "leaders", "--gateway", "http://"+s.address)
	if code != rpc.ExitUsage || !strings.Contains(stderr, "context tls in "+path) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestAContextKeepsItsCredentials checks that a gateway that is not in the context does not
// receive the token or the certificate of the context.
func TestAContextKeepsItsCredentials(t *testing.T) {
	s := newSecured(t)
	s.do(t, []string{"executors", "ex-1"})
	path, other := filepath.Join(t.TempDir(), "config.yaml"), porttest.Hold(t)
	contexts := map[string]string{"BERTH_CONTEXTS": path}
	cert := []string{"--tls-cert", s.operator.Cert, "--tls-key", s.operator.Key}
	for name, credentials := range map[string][]string{"cert": cert, "token": {"--token-file", s.token}} {
		for suffix, gateway := range map[string]string{"-other": other, "-same": other + ",https://" + s.address} {
			args := append([]string{"config", "set", name + suffix, "--gateway", gateway, "--tls-ca", s.ca}, credentials...)
			if code, _, stderr := runWith(t, contexts, args...); code != rpc.ExitDone {
				t.Fatalf("%q: exit %d: %s", args, code, stderr)
			}
		}
	}
	const denied = "the caller has no certificate and no bearer token (PERMISSION_DENIED)\n"
	for _, c := range []struct {
		name, context string
		env           map[string]string
		args          []string
		notice        string
		denied        bool
	}{
		{"a flag, certificate", "cert-other", nil, []string{"--gateway", s.address, "--tls-ca", s.ca}, "--gateway", true},
		{"a flag, token", "token-other", nil, []string{"--gateway", "https://" + s.address, "--tls-ca", s.ca}, "--gateway",
			true},
		{"one gateway of several", "token-other", nil, []string{"--gateway", s.address + "," + other, "--tls-ca", s.ca},
			"--gateway", true},
		{"a variable", "cert-other", map[string]string{"BERTH_GATEWAY": s.address, "BERTH_TLS_CA": s.ca}, nil,
			"BERTH_GATEWAY", true},
		{"explicit credentials", "token-other", nil, append([]string{"--gateway", s.address, "--tls-ca", s.ca}, cert...),
			"--gateway", false},
		{"explicit credentials in variables", "cert-other", map[string]string{"BERTH_GATEWAY": s.address,
			"BERTH_TLS_CA": s.ca, "BERTH_TOKEN_FILE": s.token}, nil, "BERTH_GATEWAY", false},
		{"a gateway of the context", "cert-same", nil, []string{"--gateway", "https://" + s.address + "/"}, "", false},
		{"a gateway of the context in a variable", "token-same", map[string]string{"BERTH_GATEWAY": s.address}, nil, "",
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if code, _, stderr := runWith(t, contexts, "config", "use", c.context); code != rpc.ExitDone {
				t.Fatal(stderr)
			}
			env := map[string]string{"BERTH_CONTEXTS": path}
			maps.Copy(env, c.env)
			code, _, stderr := runWith(t, env, append([]string{"drain", "ex-1"}, c.args...)...)
			notice := ""
			if c.notice != "" {
				notice = "berth: the credentials of context " + c.context + " are not used, because " + c.notice +
					" names a gateway that the context does not have\n"
			}
			rest, found := strings.CutPrefix(stderr, notice)
			if !found || c.denied && (code != rpc.ExitFailed || !strings.Contains(rest, denied)) ||
				!c.denied && (code != rpc.ExitDone || rest != "") {
				t.Errorf("exit %d: %s", code, stderr)
			}
		})
	}
}
