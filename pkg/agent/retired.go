package agent

import (
	"io/fs"
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
	size := sizeOf(dir)
	p.mu.Lock()
	p.retired = append(p.retired, retired{dir, size, since})
	p.mu.Unlock()
	p.expire()
}

// expire removes the oldest directories that exceed the limits, and schedules its next
// call.
func (p *Process) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	var bytes int64
	for _, r := range p.retired {
		bytes += r.bytes
	}
	over := func(r retired) bool {
		return len(p.retired) > p.cfg.EndedKeep || bytes > p.cfg.EndedMaxBytes || time.Since(r.since) >= p.cfg.EndedMaxAge
	}
	for len(p.retired) > 0 && over(p.retired[0]) {
		oldest := p.retired[0]
		p.retired = slices.Delete(p.retired, 0, 1)
		bytes -= oldest.bytes
		p.removeLocked(oldest.dir)
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(p.retired) > 0 {
		p.expiry = time.AfterFunc(p.cfg.EndedMaxAge-time.Since(p.retired[0].since), p.expire)
	}
}

// remove removes the directory of a worker. If the directory of the job is empty then, it
// removes that directory too.
func (p *Process) remove(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(dir)
}

func (p *Process) removeLocked(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		p.log.Warn("directory not removed", "error", err)
	}
	// If the job has other workers, this fails because the directory is not empty.
	_ = os.Remove(filepath.Dir(dir))
}

// sizeOf returns the total size of the files in a directory. It skips files that cannot
// be read.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
