package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"berth.dev/pkg/fault"
)

// AllowAll in an allow-list opens it to every command.
const AllowAll = "*"

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
