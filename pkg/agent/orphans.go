package agent

import (
	"os"

	"golang.org/x/sys/unix"
)

// The keeper is a subreaper: a process whose parent, a process of the worker, has exited
// becomes a child of the keeper, in whatever process group or session it is. Therefore
// the keeper can kill every such orphan.

// reapOrphans reaps orphans while the worker runs.
func (k *keeper) reapOrphans(children <-chan os.Signal) {
	for range children {
		k.reaping.Lock()
		// After an error, the next call or killOrphans reaps the others.
		orphans, _ := k.orphans()
		for _, pid := range orphans {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		k.reaping.Unlock()
	}
}

// killOrphans kills the orphans, and the orphans that these leave, until there are none.
func (k *keeper) killOrphans() error {
	k.reaping.Lock()
	defer k.reaping.Unlock()
	for {
		orphans, err := k.orphans()
		if err != nil || len(orphans) == 0 {
			return err
		}
		for _, pid := range orphans {
			// The ID of a child is not reused until the child is reaped.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range orphans {
			waitChild(pid)
		}
	}
}

// orphans returns the keeper's children, except the worker itself, dead or alive.
func (k *keeper) orphans() ([]int, error) {
	return processes(func(pid int, s stat) bool { return s.parent == k.me.PID && pid != k.group })
}
