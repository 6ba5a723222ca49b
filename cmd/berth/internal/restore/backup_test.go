package restore

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/store"
	"berth.dev/testkit/porttest"
)

// TestBackupOfSilentEtcd checks the backup of an etcd that refuses connections, or that
// accepts connections and never answers. The backup must fail with exit code 4 and an
// error that names the endpoint, and leave no file.
func TestBackupOfSilentEtcd(t *testing.T) {
	for name, endpoint := range map[string]string{"refused": porttest.Hold(t), "silent": porttest.Silent(t)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var stderr bytes.Buffer
			root := cli.New(cli.Streams{Out: io.Discard, Err: &stderr, Env: func(string) string { return "" }, Now: time.Now})
			root.AddCommand(Commands()...)
			code := cli.Run(t.Context(), root, []string{"backup", filepath.Join(dir, "backup"), "--etcd-endpoints", endpoint,
				"--timeout", "100ms"})
			if want := "no answer from etcd at " + endpoint + " within 100ms"; code != rpc.ExitUnavailable ||
				!strings.Contains(stderr.String(), want) {
				t.Errorf("exit %d, %q, want exit %d and %q", code, &stderr, rpc.ExitUnavailable, want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("files left: %v", left)
			}
		})
	}
}

// TestOutputFormats checks the formats of the results of a backup and of a restore.
func TestOutputFormats(t *testing.T) {
	etcd, err := embedded.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"backup", backup, "--etcd-endpoints", etcd.Endpoint(), "-o", "json"},
			`^{\n  "file": "` + backup + `",\n  "bytes": \d+\n}\n$`},
		{[]string{"restore", "--snapshot", backup, "--data-dir", filepath.Join(dir, "0"), "-o", "yaml"},
			`^dataDir: ` + dir + `/0\nmember: default\nrevision: \d{10,}\nclusters: \[\]\n$`},
		{[]string{"restore", "--snapshot", backup, "--data-dir", filepath.Join(dir, "1"), "-o", "name"},
			`^` + dir + `/1\n$`},
	} {
		var out, stderr bytes.Buffer
		root := cli.New(cli.Streams{Out: &out, Err: &stderr, Env: func(string) string { return "" }, Now: time.Now})
		root.AddCommand(Commands()...)
		code := cli.Run(t.Context(), root, c.args)
		if code != rpc.ExitDone || !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%v: exit %d: %s%s", c.args, code, &out, &stderr)
		}
	}
}

// TestBackupToStream checks that standard output and a pipe get the bytes of a snapshot, which a
// restore accepts, and that an existing file and a directory are refused.
func TestBackupToStream(t *testing.T) {
	etcd, err := embedded.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	dir := t.TempDir()
	backup := func(file string) (out, stderr bytes.Buffer, code int) {
		root := cli.New(cli.Streams{Out: &out, Err: &stderr, Env: func(string) string { return "" }, Now: time.Now})
		root.AddCommand(Commands()...)
		code = cli.Run(t.Context(), root, []string{"backup", file, "--etcd-endpoints", etcd.Endpoint()})
		return out, stderr, code
	}
	restores := func(data []byte) {
		t.Helper()
		file := filepath.Join(dir, "copy")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		member := Member{Name: "default", Cluster: "default=http://localhost:2380", Token: "t",
			DataDir: filepath.Join(dir, "data")}
		if _, err := Restore(t.Context(), file, member, Raise{}); err != nil {
			t.Error(err)
		}
		os.RemoveAll(member.DataDir)
	}
	out, stderr, code := backup("-")
	if code != rpc.ExitDone || !strings.HasPrefix(stderr.String(), "-: ") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	restores(out.Bytes())

	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		data, _ := os.ReadFile(pipe)
		read <- data
	}()
	if out, stderr, code := backup(pipe); code != rpc.ExitDone || !strings.HasPrefix(out.String(), pipe+": ") {
		t.Errorf("exit %d: %s%s", code, &out, &stderr)
	}
	restores(<-read)

	for _, existing := range []string{dir, filepath.Join(dir, "copy")} {
		if _, stderr, code := backup(existing); code == rpc.ExitDone || !strings.Contains(stderr.String(), "already exists") {
			t.Errorf("%s: exit %d: %s", existing, code, &stderr)
		}
	}
	if _, stderr, code := backup("/dev/full"); code == rpc.ExitDone || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

// TestSlowBackup checks that a transfer may take longer than the timeout as long as data
// arrives.
func TestSlowBackup(t *testing.T) {
	fired := make(chan struct{})
	timer := time.AfterFunc(time.Hour, func() { close(fired) })
	timer.Stop()
	h := &activity{Reader: strings.NewReader("x"), timer: timer, silence: time.Millisecond}
	if n, _ := h.Read(make([]byte, 1)); n != 1 {
		t.Fatal("no data was read")
	}
	<-fired // the timer was restarted
}

// TestRefusedByEtcd checks that the errors of commands name the options if etcd refuses them.
func TestRefusedByEtcd(t *testing.T) {
	etcd, err := embedded.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	s, err := store.Dial(store.DialConfig{Endpoints: []string{etcd.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	third := func(_ any, err error) error { return err }
	admin := s.Client()
	for _, err := range []error{
		third(admin.UserAdd(t.Context(), "root", "root")), third(admin.UserGrantRole(t.Context(), "root", "root")),
		third(admin.UserAdd(t.Context(), "guest", "guest")), third(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	const options = "--etcd-user and --etcd-password-file"
	for _, c := range []struct{ user, password, backup, inspect string }{
		{"", "", "requires a login: set " + options, "requires a login: set " + options},
		{"guest", "wrong", `refuses the login of the user "guest": correct ` + options,
			`refuses the login of the user "guest": correct ` + options},
		{"guest", "guest", `does not permit the user "guest" to read a snapshot, which requires the role root: set ` + options,
			`does not permit the user "guest" to read /berth/default/registry/ready: set ` + options},
		{"root", "root", "", "there is no key"},
	} {
		for name, want := range map[string]string{filepath.Join(dir, "backup"): c.backup, "registry/ready": c.inspect} {
			args := []string{"backup", name, "--etcd-endpoints", etcd.Endpoint()}
			if name == "registry/ready" {
				args[0] = "inspect"
			}
			if c.user != "" {
				if err := os.WriteFile(file, []byte(c.password), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--etcd-user", c.user, "--etcd-password-file", file)
			}
			var out, stderr bytes.Buffer
			root := cli.New(cli.Streams{Out: &out, Err: &stderr, Env: func(string) string { return "" }, Now: time.Now})
			root.AddCommand(Commands()...)
			code := cli.Run(t.Context(), root, args)
			if !strings.Contains(stderr.String(), want) || (want == "") != (code == rpc.ExitDone) {
				t.Errorf("%v: exit %d: %s%s", args, code, &out, &stderr)
			}
		}
	}
}
