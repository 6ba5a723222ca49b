package chaos

import (
	"os"
	"testing"
)

// Half of the processes start with the old program. point changes the program of a process.
func TestPrograms(t *testing.T) {
	p := programs{dir: t.TempDir(), new: "/new", old: "/old"}
	starts := func(name string) string {
		t.Helper()
		program, err := os.Readlink(p.link(name))
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	for name, want := range map[string]string{
		"registry-0": "/old", "registry-1": "/new", "executor-state-2": "/old", "host-0": "/old", "etcd-0": "/new",
		simName: "/new",
	} {
		if path := p.of(name); path != p.link(name) || starts(name) != want {
			t.Errorf("%s starts %s, version %s, want %s", name, path, starts(name), want)
		}
	}
	for _, old := range []bool{false, true, true, false} {
		if err := p.point("registry-0", old); err != nil || (starts("registry-0") == "/old") != old {
			t.Errorf("registry-0 starts %s, %v", starts("registry-0"), err)
		}
	}
	if path := (programs{dir: t.TempDir(), new: "/new"}).of("registry-0"); path != "/new" {
		t.Errorf("without an old binary: %s", path)
	}
}
