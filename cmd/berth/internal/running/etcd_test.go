package running

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A command sends the password beyond loopback in plain text only with --insecure.
func TestPasswordForPlainEtcd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ endpoint, flag, want string }{
		{"etcd-0:2379", "--insecure=false", "use https:// or add --insecure"},
		{"etcd-0:2379", "--insecure", ""},
		{"https://etcd-0:2379", "--insecure=false", ""},
	} {
		var e Etcd
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		e.Flags(set, "endpoints")
		if err := set.Parse([]string{"--etcd-endpoints", c.endpoint, "--etcd-user", "u", "--etcd-password-file", file,
			c.flag}); err != nil {
			t.Fatal(err)
		}
		config, err := e.Config()
		switch {
		case c.want == "" && (err != nil || config.Password != "secret"):
			t.Errorf("%+v: the password is %q: %v", c, config.Password, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}
