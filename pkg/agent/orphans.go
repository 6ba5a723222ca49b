package agent

import (
	"os"

	"golang.org/x/sys/unix"
)

// The keeper is a subreaper. When a process of the worker exits, its children become
// children of the keeper, in any process group or session. Therefore the keeper can kill
// every such orphan.

// reapOrphans reaps orphans while the worker runs.
func (k *keeper) reapOrphans(children <-chan os.Signal) {
	for range children {
		k.reaping.Lock()
		// If listing fails, the next iteration or killOrphans reaps the remaining orphans.
		orphans, _ := k.orphans()
		for _, pid := range orphans {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		k.reaping.Unlock()
		k.notify()
	}
}

// awaitOrphans waits until the keeper has no orphans, or the grace period of a stop request
// is over. The process has exited, so every process of the worker is an orphan or descends
// from one. The stop request signalled only the worker's process group. If an orphan is in
// another group, that whole group gets the signal here, once, so that it does not run for the
// whole grace period without knowing of the stop.
func (k *keeper) awaitOrphans() {
	signalled := map[int]bool{}
	for !k.isKilled() {
		k.reaping.Lock()
		orphans, err := k.orphans()
		for _, pid := range orphans {
			if group, err := unix.Getpgid(pid); err == nil && group != k.group {
				target := -group
				if group == unix.Getpgrp() { // a process of a worker can join the group of its keeper
					target = pid
				}
				if signalled[target] {
					continue
				}
				signalled[target] = true
				// The ID of a group is not reused until its last member is reaped.
				_ = unix.Kill(target, k.stopSignal)
			}
		}
		k.reaping.Unlock()
		if err != nil || len(orphans) == 0 {
			return
		}
		<-k.changed
	}
}

func (k *keeper) isKilled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// killOrphans kills the keeper's orphans until there are none. A killed orphan may leave
// further orphans, and killOrphans kills these too.
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
