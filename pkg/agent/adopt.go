package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt implements Driver. It reads the directories of the workers.
func (p *Process) Adopt(ready func(Spec), ended func(Spec, Exit)) ([]Adopted, error) {
	dirs, err := filepath.Glob(filepath.Join(p.cfg.Dir, "workers", "*", "*"))
	if err != nil {
		return nil, err
	}
	var adopted []Adopted
	var forgotten []string
	for _, dir := range dirs {
		if has(dir, fileForgotten) {
			forgotten = append(forgotten, dir)
			continue
		}
		a, err := p.adopt(dir, ready, ended)
		if err != nil {
			return nil, fmt.Errorf("adopt %s: %w", dir, withLimit(err))
		}
		if a == nil {
			p.discard(dir)
			continue
		}
		adopted = append(adopted, *a)
	}
	slices.SortFunc(forgotten, func(a, b string) int { return cmp.Compare(modified(a), modified(b)) })
	now := time.Now()
	for _, dir := range forgotten {
		p.retire(dir, rebase(time.Unix(0, modified(dir)), now))
	}
	return adopted, nil
}

// adopt adopts the worker of a directory. It returns nil if the worker never ran and
// never will.
func (p *Process) adopt(dir string, ready func(Spec), ended func(Spec, Exit)) (*Adopted, error) {
	var pl plan
	if err := readJSON(filepath.Join(dir, fileWorker), &pl); err != nil {
		p.log.Warn("worker.json cannot be read: the worker was not started", "dir", dir, "error", err)
		return nil, nil
	}
	// The first claim decides. A keeper may still be starting. If the keeper claims later,
	// it exits; if it claimed first, the agent adopts it.
	if _, err := claim(dir, process{}); err != nil {
		return nil, err
	}
	k := &keptWorker{
		driver: p, dir: dir, signals: pl.Signals, volume: pl.Spec.Volume, user: pl.User, settled: make(chan struct{}),
		ended: func(x Exit) { ended(pl.Spec, x) }, ready: func() { ready(pl.Spec) },
	}
	close(k.settled)
	if err := readJSON(filepath.Join(dir, fileClaim), &k.keeper); err != nil {
		// A power failure of the host can leave such a file. The keepers from before the
		// failure do not run any more, so their pipes have no writer.
		p.log.Warn("the claim of a worker cannot be read", "dir", dir, "error", err)
		k.keeper = process{PID: -1}
	}
	// Without a keeper the pipe has no writer and ends at once.
	var err error
	if k.events, err = os.OpenFile(filepath.Join(dir, pipeEvents), os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	var v verdict
	if k.keeper.PID == 0 || readJSON(filepath.Join(dir, fileExit), &v) == nil && v.NotStarted != "" {
		return nil, errors.Join(k.awaitLate(), k.events.Close())
	}
	p.mu.Lock()
	// The range of IDs may have changed. The killer's ID must not become that of a worker.
	p.users[pl.User.ID], p.users[pl.User.Killer] = true, true
	p.mu.Unlock()
	a := &Adopted{
		Spec: pl.Spec, Handle: k, Since: time.Unix(0, modified(filepath.Join(dir, fileClaim))),
		Stopping: has(dir, fileStopping), Late: has(dir, fileLate), HasMembers: has(dir, fileGang),
	}
	// The events pipe is open. If the keeper creates the file only now, follow reads its byte.
	if at := modified(filepath.Join(dir, fileReady)); at > 0 {
		a.Ready, a.Since = true, time.Unix(0, at)
		k.ready = nil
	}
	p.watch(k)
	return a, nil
}

// lateKeeper is the maximum time after which a late keeper has found that its worker is
// already claimed, and has exited.
const lateKeeper = 10 * time.Second

// awaitLate waits until a late keeper has exited. Only then may the caller remove the
// directory, because the claim in it stops the keeper.
func (k *keptWorker) awaitLate() error {
	if err := k.events.SetReadDeadline(time.Now().Add(lateKeeper)); err != nil {
		return err
	}
	return k.follow()
}

// modified returns the modification time of a file in nanoseconds, or 0 if the file does
// not exist.
func modified(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.ModTime().UnixNano()
}
