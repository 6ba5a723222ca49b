package agent

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// retired is the directory of a worker that has ended and for which Forget was called.
// The driver keeps the directory for the worker's output.
type retired struct {
	dir   string
	bytes int64
	since time.Time
}

// retire adds a directory to the retired ones, and removes the oldest directories that
// exceed the limits of the config.
func (p *Process) retire(dir string, since time.Time) {
	size := p.sizeOf(dir)
	p.mu.Lock()
	p.retired = append(p.retired, retired{dir, size, since})
	p.mu.Unlock()
	p.expire()
}

// expire removes the oldest directories that exceed the limits, and schedules its next
// call.
func (p *Process) expire() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	bytes := p.retiredBytes()
	over := func(r retired) bool {
		return len(p.retired) > p.cfg.EndedKeep || bytes > p.cfg.EndedMaxBytes || time.Since(r.since) >= p.cfg.EndedMaxAge
	}
	var expired []string
	for len(p.retired) > 0 && over(p.retired[0]) {
		oldest := p.retired[0]
		p.retired = slices.Delete(p.retired, 0, 1)
		bytes -= oldest.bytes
		expired = append(expired, oldest.dir)
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(p.retired) > 0 {
		p.expiry = time.AfterFunc(p.cfg.EndedMaxAge-time.Since(p.retired[0].since), p.expire)
	}
	p.watches.Add(1) // Close waits for the removal, which then stops early.
	p.mu.Unlock()
	defer p.watches.Done()
	for _, dir := range expired {
		p.remove(dir)
	}
}

// retiredBytes returns the disk space of the retired directories. p.mu must be locked.
func (p *Process) retiredBytes() (bytes int64) {
	for _, r := range p.retired {
		bytes += r.bytes
	}
	return bytes
}

// remove removes the directory of a worker, and logs a failure.
func (p *Process) remove(dir string) {
	_ = p.removeDir(dir)
}

// removeDir removes the directory of a worker. If the directory of the job is empty then, it
// removes that directory too. It logs a failure.
func (p *Process) removeDir(dir string) error {
	// The worker's own directory is the first: until it is removed, the directory keeps the
	// file that marks the worker as forgotten.
	err := removeTree(dir, dirWork, p.closing)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		p.log.Warn("directory not removed", "dir", dir, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// If the job has other workers, this fails because the directory is not empty.
	_ = os.Remove(filepath.Dir(dir))
	return err
}

// sizeOf returns the disk space of a worker's directory. If the worker's own directory is
// too large to visit, sizeOf removes it.
func (p *Process) sizeOf(dir string) int64 {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0
	}
	defer root.Close() //nolint:errcheck // only a handle
	entries := maxEntries
	bytes := treeSize(root, &entries, maxDepth)
	if entries < 0 {
		p.log.Warn("a worker left too many files: removing its own directory", "dir", dir)
		if err := removeTree(dir, dirWork, p.closing); err != nil {
			p.log.Warn("directory not removed", "dir", dir, "error", err)
		}
	}
	return bytes
}
