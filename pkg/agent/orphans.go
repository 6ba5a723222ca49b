package agent

import (
	"os"

	"golang.org/x/sys/unix"
)

// The keeper is a subreaper: what the worker starts and leaves behind becomes a
// child of the keeper, whatever group or session it went to. So the keeper, and
// not the agent or the host, sees to the end of it.

// reapOrphans takes in the ends of orphans while the worker lives.
func (k *keeper) reapOrphans(children <-chan os.Signal) {
	for range children {
		k.reaping.Lock()
		// Those that an error hides are reaped with the next one, or at the end.
		orphans, _ := k.orphans()
		for _, pid := range orphans {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		k.reaping.Unlock()
	}
}

// killOrphans kills the orphans, and theirs, until there are none.
func (k *keeper) killOrphans() error {
	k.reaping.Lock()
	defer k.reaping.Unlock()
	for {
		orphans, err := k.orphans()
		if err != nil || len(orphans) == 0 {
			return err
		}
		for _, pid := range orphans {
			// A child keeps its id until it is reaped: it can be no other's.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range orphans {
			for {
				if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
					break
				}
			}
		}
	}
}

// orphans lists the keeper's children but for the worker itself, dead or alive.
func (k *keeper) orphans() ([]int, error) {
	return processes(func(pid int, s stat) bool { return s.parent == k.me.PID && pid != k.group })
}
