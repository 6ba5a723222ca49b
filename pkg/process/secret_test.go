package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/reload"
)

// The password for etcd is the content of its file, also after a change. An empty file is an error
// at the start, and later it changes nothing.
func TestPasswordForEtcdFollowsItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := process.Common{Etcd: []string{"127.0.0.1:2379"}, EtcdUser: "berth", EtcdPasswordFile: file}
	secured, err := config.Secure(identity.Nobody, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer secured.Close()
	refused := func(want string) {
		t.Helper()
		if _, err := secured.Etcd(config); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	refused("--etcd-password-file: cannot read " + file)
	write(" \n")
	refused("--etcd-password-file: " + file + " is empty")
	write("one\n")
	etcd, err := secured.Etcd(config)
	if err != nil || etcd.Username != "berth" || etcd.Password != "one" || etcd.CurrentPassword() != "one" {
		t.Fatalf("got %+v, %v", etcd, err)
	}
	await := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); etcd.CurrentPassword() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the password is %q, want %q", etcd.CurrentPassword(), want)
			}
		}
	}
	write("")
	reload.Now()
	write("two\n")
	await("two")
	write("three")
	reload.Now()
	await("three")
	problem := func(want string) {
		t.Helper()
		if got := etcd.PasswordProblem(); got != want {
			t.Errorf("the problem of the file is %q, want %q", got, want)
		}
	}
	problem("")
	write(" \n")
	problem("--etcd-password-file: " + file + " is empty")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	problem("--etcd-password-file: cannot read " + file + ": no such file or directory")
}
