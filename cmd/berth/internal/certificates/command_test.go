package certificates

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// run runs `berth certs` in the current directory.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&b)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return b.String(), err
}

func TestCertificatesAreIssued(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ line, want string }{
		{"init --dir d", `^d/ca.crt: certificate authority, valid until \S+Z\nd/ca.key: its key; keep it secret\n$`},
		{"issue --dir d gateway g-0 --hosts g-0.example.com",
			`^d/gateway-g-0.crt: berth://default/gateway/g-0, valid until \S+Z\nd/gateway-g-0.key: its key; keep it secret\n$`},
		{"issue --dir d agent sim-* --cluster prod --valid 1h", `^d/agent-sim-\+.crt: berth://prod/agent/sim-\*, valid`},
		{"issue --dir d operator alice", `^d/operator-alice.crt: berth://default/operator/alice, valid`},
		{"issue --dir d viewer bob -o json", `(?s)^{\n  "certificate": "d/viewer-bob.crt",\n  "key": "d/viewer-bob.key",\n` +
			`  "identity": "berth://default/viewer/bob",\n  "expires": "\S+Z"\n}\n$`},
		{"init --dir e -o yaml", `(?s)^certificate: e/ca.crt\nkey: e/ca.key\nexpires: "\S+Z"\n$`},
		{"issue --dir e viewer bob -o name", `^e/viewer-bob.crt\n$`},
	} {
		got, err := run(t, strings.Fields(c.line)...)
		if err != nil || !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s: %v\n%s", c.line, err, got)
		}
	}
	files, err := filepath.Glob("d/*")
	if err != nil || len(files) != 10 {
		t.Errorf("the files are %q: %v", files, err)
	}
}

func TestErrorsNameTheArgument(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := run(t, "init", "--dir", "d"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("damaged", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		if err := os.WriteFile(filepath.Join("damaged", name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"init --dir d", "cannot create the authority: d/ca.crt already exists"},
		{"init --dir e --valid 0s", "--valid: must be longer than 0"},
		{"issue --dir d boss alice", "ROLE: must be one of job, agent, "},
		{"issue --dir d viewer a/b", "name: must be letters"},
		{"issue --dir d viewer a --cluster a/b", "cluster: must be a name"},
		{"issue --dir d viewer a --valid -1h", "--valid: must be longer than 0"},
		{"issue --dir d viewer a --hosts h", "--hosts: must not be set for the role viewer"},
		{"issue --dir nowhere viewer a", "nowhere has no certificate authority: run 'berth certs init --dir nowhere' first"},
		{"issue --dir damaged viewer a", "cannot use the authority: ca.crt contains no certificate"},
		{"issue viewer a", `required flag(s) "dir" not set`},
	} {
		if out, err := run(t, strings.Fields(c.line)...); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s: %v, want %s\n%s", c.line, err, c.want, out)
		}
	}
}
