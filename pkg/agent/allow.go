package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// AllowAll in a list of commands allows every command. In a list of variables it allows
// every variable that does not make a program load code.
const AllowAll = "*"

// loaders are the variables that make a program, or its loader, run code of the caller's
// choice. AllowAll does not allow these variables: the allow-list must contain their
// exact names. An entry that ends in '*' is a prefix. The list cannot be complete,
// because any program may read further variables of this kind.
var loaders = []string{
	"LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "HOSTALIASES", "TERMINFO*",
	"BASH_ENV", "BASH_FUNC_*", "ENV", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_SSH*",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH",
	"LUA_*", "NODE_OPTIONS", "NODE_PATH", "PERL5*", "PERLLIB", "PYTHON*", "RUBYLIB", "RUBYOPT",
}

// permitEnv checks the variables of a task against the allow-list. It skips variables
// with the agent's own prefix, because the agent never takes them from a task.
func permitEnv(allow []string, env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case strings.HasPrefix(name, model.AgentVariables), slices.Contains(allow, name) && name != AllowAll:
		case slices.Contains(allow, AllowAll) && !loads(name):
		default:
			return fault.New(fault.Precondition, fault.ReasonNotAllowed,
				"the executor does not allow tasks to set the variable %q", name)
		}
	}
	return nil
}

func loads(name string) bool {
	return slices.ContainsFunc(loaders, func(l string) bool {
		prefix, open := strings.CutSuffix(l, "*")
		return name == l || open && strings.HasPrefix(name, prefix)
	})
}

// digestOf returns a digest of lists whose order does not matter.
func digestOf(kind string, lists ...[]string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", kind)
	for _, list := range lists {
		list = slices.Clone(list)
		slices.Sort(list)
		fmt.Fprintf(sum, "%q", slices.Compact(list))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// CheckAllow returns the allow-list with clean paths. It refuses names and relative paths,
// because their meaning depends on the PATH or the directory of the agent.
func CheckAllow(allow []string) ([]string, error) {
	clean := slices.Clone(allow)
	for i, a := range clean {
		if a == AllowAll {
			continue
		}
		if !filepath.IsAbs(a) {
			hint := "the agent does not find it in its PATH"
			if path, err := exec.LookPath(a); err == nil && filepath.IsAbs(path) {
				hint = "use " + path
			}
			return nil, fault.BadField(fault.ReasonInvalid, "--allow", "must have absolute paths or %s, got %q: %s", AllowAll,
				a, hint)
		}
		clean[i] = filepath.Clean(a)
	}
	return clean, nil
}

// CheckAllowEnv refuses names that no variable has. AllowAll is not a pattern.
func CheckAllowEnv(allow []string) error {
	for _, name := range allow {
		if name != AllowAll && (name == "" || strings.ContainsAny(name, "=*\x00")) {
			return fault.BadField(fault.ReasonInvalid, "--allow-env", "must have exact names of variables or %s, got %q", AllowAll,
				name)
		}
	}
	return nil
}

// resolve returns the path of a command's program, without symbolic links, and checks it
// against the allow-list. It looks up a name without a slash in the agent's own PATH, not
// in the PATH of the task. The command is allowed if the list contains its path, before or
// after symbolic links are resolved. Only the directories of the list's paths are resolved:
// a listed link to a program with many names, such as busybox, allows one name.
func resolve(allow []string, command, workDir string) (string, error) {
	if command == "" {
		return "", fault.BadField(fault.ReasonRequired, "task.command", "is required by an executor that runs processes")
	}
	path, err := command, error(nil)
	if !strings.Contains(command, "/") {
		path, err = exec.LookPath(command)
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(workDir, path)
	}
	path = filepath.Clean(path)
	target, noTarget := filepath.EvalSymlinks(path)
	if err != nil && slices.ContainsFunc(allow, func(a string) bool { return filepath.Base(a) == command }) {
		// Another executor with the same list may have the program in its PATH.
		return "", badTask("%q is not in the executor's PATH", command)
	}
	if !slices.ContainsFunc(allow, func(a string) bool {
		return a == AllowAll || err == nil && realDir(a) == realDir(path) || noTarget == nil && realDir(a) == target
	}) {
		return "", fault.New(fault.Precondition, fault.ReasonNotAllowed, "the executor's allow-list does not have %q",
			command)
	}
	if err != nil {
		return "", badTask("%q is not in the executor's PATH", command)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && noTarget != nil, err != nil && !blamesTask(err):
		return "", startFailed("%q cannot be read: %v", path, cmp.Or(err, noTarget))
	case err != nil || info.IsDir() || info.Mode()&0o111 == 0:
		return "", badTask("%q is not an executable file of the executor", path)
	}
	return target, nil
}

// realDir resolves the symbolic links in the directory of a path.
func realDir(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return path
	}
	return filepath.Join(dir, filepath.Base(path))
}

func startFailed(format string, args ...any) *fault.Error {
	return fault.New(fault.Precondition, fault.ReasonStartFailed, format, args...)
}
