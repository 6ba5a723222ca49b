package agent

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth.dev/api/fault"
)

// A command is allowed if its path is on the list, before or after symbolic links are
// resolved. The driver executes the file that it has checked, without links.
func TestCommandsAreAllowedByPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin, multi := filepath.Join(dir, "bin"), filepath.Join(dir, "bin", "multi")
	err = errors.Join(os.Mkdir(bin, 0o750), os.WriteFile(multi, nil, 0o750),
		os.Symlink("multi", filepath.Join(bin, "one")), os.Symlink("multi", filepath.Join(bin, "two")),
		os.Symlink("bin", filepath.Join(dir, "sbin")),
		os.Symlink("missing", filepath.Join(bin, "broken")), os.WriteFile(filepath.Join(bin, "text"), nil, 0o640))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	const denied, failed = fault.ReasonNotAllowed, fault.ReasonStartFailed
	for _, c := range []struct {
		allow, command string
		want           fault.Reason // none if the command is allowed
	}{
		{"bin/one", "/bin/one", ""}, {"bin/one", "one", ""}, {"bin/one", "/sbin/one", ""}, {"sbin/one", "/bin/one", ""},
		{"sbin/one", "one", ""}, {"bin/../bin/one", "/bin/./one", ""},
		{"bin/one", "/bin/two", denied}, {"bin/one", "two", denied}, {"bin/one", "multi", denied},
		{"bin/multi", "one", ""}, {"sbin/multi", "/bin/two", ""}, {"bin", "one", denied},
		{"bin/broken", "/bin/broken", failed}, {"bin/text", "/bin/text", failed}, {"bin/none", "/bin/none", failed},
		{"bin/none", "none", failed}, {"bin/one", "none", denied}, {"", "one", denied},
	} {
		allow, err := CheckAllow([]string{dir + "/" + c.allow})
		if err != nil {
			t.Fatal(err)
		}
		command := c.command
		if strings.HasPrefix(command, "/") {
			command = dir + command
		}
		path, err := resolve(allow, command, dir)
		if c.want == "" && (err != nil || path != multi) || c.want != "" && !fault.Is(err, c.want) {
			t.Errorf("%q for the list %q: %q, %v, want %s", c.command, c.allow, path, err, c.want)
		}
	}
}

// Drivers have the same digest of their lists if and only if they refuse the same tasks.
func TestAllowListsHaveADigest(t *testing.T) {
	digest := func(allow, env []string) string {
		return allowLists(&Process{cfg: ProcessConfig{Allow: allow, AllowEnv: env}})
	}
	named := map[string]Function{"a": nil, "b": nil}
	same := digest([]string{"/a", "/b"}, []string{"FOO"})
	if same != digest([]string{"/b", "/a", "/a"}, []string{"FOO"}) ||
		allowLists(NewFunctions(named)) != allowLists(NewFunctions(maps.Clone(named))) || allowLists(&slowDriver{}) != "" {
		t.Error("equal lists have different digests")
	}
	different := []string{same, digest([]string{"/a"}, []string{"/b", "FOO"}), digest([]string{"/a", "/b"}, nil),
		digest(nil, []string{"FOO"}), digest(nil, nil), allowLists(NewFunctions(named)), allowLists(NewFunctions(nil))}
	slices.Sort(different)
	if n := len(slices.Compact(different)); n != 7 {
		t.Errorf("only %d digests: %v", n, different)
	}
}

// An allow-list with a name or a relative path is refused. The error has the path to use.
func TestAllowListHasAbsolutePaths(t *testing.T) {
	for entry, hint := range map[string]string{
		"sh": "use " + programPath(t, "sh"), "./sh": "does not find it", "no-such-program": "does not find it",
		"": "does not find it",
	} {
		_, err := NewProcess(ProcessConfig{Dir: t.TempDir(), Allow: []string{"/bin/true", entry}})
		if f := fault.Of(err); f == nil || len(f.Fields) != 1 || f.Fields[0].Name != "--allow" ||
			!strings.Contains(f.Message, hint) {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
