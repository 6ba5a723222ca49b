package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth.dev/api/fault"
)

// taskErrors are the errors with which the kernel refuses the program, the arguments or the
// environment of a task. Any other error, such as a full disk, a full table of processes or a
// broken disk, may be a fault of the host.
var taskErrors = []error{
	unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ENOEXEC, unix.E2BIG, unix.ELOOP, unix.ENAMETOOLONG, unix.EISDIR,
	unix.ELIBBAD,
}

// blamesTask reports whether an error of the kernel is a fault of the task.
func blamesTask(err error) bool {
	return slices.ContainsFunc(taskErrors, func(e error) bool { return errors.Is(err, e) })
}

// badTask returns the error of a start that fails because of the task itself. The assigner does
// not count such a failure against the executor.
func badTask(format string, args ...any) *fault.Error {
	return startFailed(format, args...).With(fault.MetaBadTask, "true")
}

// isBadTask reports whether badTask returned an error.
func isBadTask(err error) bool { return err != nil && fault.Of(err).Meta[fault.MetaBadTask] != "" }

// checkText refuses texts that the kernel cannot pass to a program.
func checkText(spec Spec) error {
	isBad := func(text string) bool { return strings.ContainsRune(text, 0) }
	if isBad(spec.Command) || slices.ContainsFunc(spec.Args, isBad) {
		return badTask("the command or an argument contains a NUL byte")
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		if isBad(name) || isBad(spec.Env[name]) {
			return badTask("the variable %q contains a NUL byte", name)
		}
	}
	return nil
}

// enters returns why the user cannot enter a directory. The kernel returns the same errors for
// a working directory that cannot be entered, which is a fault of the host, and for a program
// that cannot be run.
func (u user) enters(dir string) error {
	cannot := func(err error) error { return fmt.Errorf("cannot enter the working directory %s: %w", dir, err) }
	switch info, err := os.Stat(dir); {
	case err != nil:
		return cannot(errors.Unwrap(err)) // without the path
	case !info.IsDir():
		return cannot(unix.ENOTDIR)
	}
	if u.ID == 0 {
		if err := unix.Access(dir, unix.X_OK); err != nil {
			return cannot(err)
		}
		return nil
	}
	for path := dir; ; path = filepath.Dir(path) {
		var s unix.Stat_t
		if err := unix.Stat(path, &s); err != nil {
			return cannot(err)
		}
		if s.Mode&0o001 == 0 && !(s.Uid == u.ID && s.Mode&0o100 != 0) {
			return cannot(fmt.Errorf("the user %d of a worker cannot enter %s: run chmod o+x %s", u.ID, path, path))
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}
