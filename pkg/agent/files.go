package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startFiles is the number of files that a start opens at the same time: those of the
	// worker's directory, and those with which the Go runtime starts a keeper. A worker that
	// runs keeps one of them.
	startFiles = 10
	// spareFiles is the number of files that starts leave free, for stops, removals, reads of
	// output and connections.
	spareFiles = 8
	// agentFiles is an estimate of the files that an agent without workers has open.
	agentFiles = 32
	// raiseFiles says how to raise the limit.
	raiseFiles = "raise LimitNOFILE of its unit, or ulimit -n"
)

// fileLimit returns the number of files that this process may open.
func fileLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 1 << 30
	}
	return int(limit.Cur)
}

// openFiles returns the number of files that this process has open.
func openFiles() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err
}

// takeFiles waits until the process may open the files of one more start, and fails if it may
// not. So a start does not begin that could not remove what it made. The caller must call
// freeFiles if takeFiles succeeds.
func (p *Process) takeFiles() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		limit, need := fileLimit(), startFiles*(p.starting+1)+spareFiles
		if len(p.watched)+need <= limit/2 {
			p.starting++ // The files need not be counted, which takes milliseconds for thousands.
			return nil
		}
		used, err := openFiles()
		if err == nil && used+need <= limit {
			p.starting++
			return nil
		}
		if p.starting > 0 {
			p.started.Wait() // it closes most of its files
			continue
		}
		if err == nil {
			err = fmt.Errorf("the agent has %d: %w", used, unix.EMFILE)
		}
		return withLimit(err)
	}
}

func (p *Process) freeFiles() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	p.started.Broadcast()
}

// withLimit adds the limit, and how to raise it, to an error that says that it was reached.
func withLimit(err error) error {
	// The error of a keeper, which has the same limit, is only a text.
	if err == nil || !errors.Is(err, unix.EMFILE) && !strings.Contains(err.Error(), unix.EMFILE.Error()) {
		return err
	}
	return fmt.Errorf("%w (the limit of the agent is %d: %s)", err, fileLimit(), raiseFiles)
}

// filesFor returns the number of files that an agent with this number of workers may need.
func filesFor(workers int64, starts int) int64 {
	return workers + startFiles*min(int64(starts), workers) + spareFiles + agentFiles
}

// retryRemovalAfter is the time between attempts to remove directories that could not be
// removed.
const retryRemovalAfter = time.Second

// keepRemoving records that the directory of a worker that was not started could not be
// removed, and retries. p.mu must be locked.
func (p *Process) keepRemoving(dir string) {
	p.left[dir] = true
	if !p.closed && p.retryRemoval == nil {
		p.retryRemoval = time.AfterFunc(retryRemovalAfter, p.removeLeft)
	}
}

// removeLeft removes the directories that could not be removed before.
func (p *Process) removeLeft() {
	p.mu.Lock()
	p.retryRemoval = nil
	if p.closed {
		p.mu.Unlock()
		return
	}
	var dirs []string
	for dir := range p.left {
		dirs = append(dirs, dir)
	}
	p.watches.Add(1) // Close waits for the removal
	p.mu.Unlock()
	defer p.watches.Done()
	for _, dir := range dirs {
		p.removing.Lock()
		p.mu.Lock()
		left := p.left[dir]
		p.mu.Unlock()
		if left { // otherwise a start has removed it, and may have made another one
			p.discard(dir)
		}
		p.removing.Unlock()
	}
}

// discard removes the directory of a worker that was not started. If that fails, discard is
// repeated until it succeeds, so that a failed start leaves nothing.
func (p *Process) discard(dir string) {
	err := p.removeDir(dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.keepRemoving(dir)
		return
	}
	delete(p.left, dir)
}
