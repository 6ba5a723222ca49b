package agent

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// AllowAll in an allow-list opens it to every command, or to every variable that does
// not make a program load code.
const AllowAll = "*"

// loaders are the variables by which a program, or the loader of a program, runs code
// that its caller names. AllowAll does not cover them: each needs its exact name in the
// list. A name that ends in '*' stands for all that begin so. Programs may have others
// that nobody here knows of, so this list is never complete.
var loaders = []string{
	"LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "HOSTALIASES", "TERMINFO*",
	"BASH_ENV", "BASH_FUNC_*", "ENV", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_SSH*",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH",
	"LUA_*", "NODE_OPTIONS", "NODE_PATH", "PERL5*", "PERLLIB", "PYTHON*", "RUBYLIB", "RUBYOPT",
}

// permitEnv checks the variables of a task against the list of those that tasks may
// set. What belongs to the agent is not checked: it is never taken from a task.
func permitEnv(allow []string, env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case strings.HasPrefix(name, model.AgentVariables), slices.Contains(allow, name) && name != AllowAll:
		case slices.Contains(allow, AllowAll) && !loads(name):
		default:
			return fault.New(fault.Precondition, fault.ReasonNotAllowed, "the executor does not allow tasks to set the variable %q", name)
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

// resolve finds the program of a command and checks it against the allow-list.
// A name without a slash is looked up in the agent's own PATH, whatever the
// task's environment says. It is allowed when the list has the name as it was
// given, or the path that was found.
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
	if !slices.ContainsFunc(allow, func(a string) bool { return a == AllowAll || a == command || a == path }) {
		return "", fault.New(fault.Precondition, fault.ReasonNotAllowed, "the allow-list of the executor does not name %q", command)
	}
	if err != nil {
		return "", startFailed("%q is not in the executor's PATH", command)
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return "", startFailed("%q is no program of the executor", path)
	}
	return path, nil
}

func startFailed(format string, args ...any) *fault.Error {
	return fault.New(fault.Precondition, fault.ReasonStartFailed, format, args...)
}
