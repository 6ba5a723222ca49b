package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The removal of a worker's directory does not follow symbolic links, and needs neither
// permissions nor a short path in it.
func TestRemovalStaysInTheWorkersDirectory(t *testing.T) {
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for name, build := range map[string]func(t *testing.T, work string) error{
		"links": func(_ *testing.T, work string) error {
			return errors.Join(os.MkdirAll(filepath.Join(work, "a", "b"), 0o750),
				os.Symlink(outside, filepath.Join(work, "dir")), os.Symlink(kept, filepath.Join(work, "file")),
				os.Symlink(outside, filepath.Join(work, "a", "dir")), os.Symlink("/", filepath.Join(work, "a", "b", "root")),
				os.Symlink("..", filepath.Join(work, "a", "up")))
		},
		"the directory is a link": func(_ *testing.T, work string) error {
			return errors.Join(os.Remove(work), os.Symlink(outside, work))
		},
		"the directory is a file": func(_ *testing.T, work string) error {
			return errors.Join(os.Remove(work), os.WriteFile(work, nil, 0))
		},
		"no permissions": func(_ *testing.T, work string) error {
			locked := filepath.Join(work, "a", "b", "c")
			return errors.Join(os.MkdirAll(locked, 0o750), os.WriteFile(filepath.Join(locked, "file"), nil, 0),
				os.Chmod(locked, 0), os.Chmod(filepath.Dir(locked), 0))
		},
		"a deep tree": func(t *testing.T, work string) error {
			// Its path is longer than the kernel accepts.
			at, err := os.OpenRoot(work)
			for range 600 {
				if err == nil {
					err = at.Mkdir("directory", 0o750)
				}
				if err != nil {
					break
				}
				var next *os.Root
				next, err = at.OpenRoot("directory")
				_ = at.Close()
				at = next
			}
			return errors.Join(err, at.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewProcess(ProcessConfig{Dir: agentDir(t), Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(p.cfg.Dir, "workers", "job", "worker")
			work := filepath.Join(dir, dirWork)
			if err := os.MkdirAll(work, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := build(t, work); err != nil {
				t.Fatal(err)
			}
			p.remove(dir)
			if _, err := os.Lstat(filepath.Dir(dir)); !os.IsNotExist(err) {
				t.Errorf("files left: %v", err)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Error(err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The size of an ended worker's directory is the space that it takes. If the worker left
// more directories than the agent visits, the agent removes them and keeps the output.
func TestSizeOfAWorkersDirectory(t *testing.T) {
	p, err := NewProcess(ProcessConfig{Dir: agentDir(t), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dir := filepath.Join(p.cfg.Dir, "worker")
	deep := filepath.Join(dir, dirWork)
	for range 10 {
		deep = filepath.Join(deep, "d")
	}
	sparse := filepath.Join(deep, "sparse")
	err = errors.Join(os.MkdirAll(deep, 0o750), os.WriteFile(filepath.Join(dir, fileStdout), []byte("out"), 0o640),
		os.WriteFile(sparse, []byte("x"), 0o640), os.Truncate(sparse, 1<<40), os.Symlink("/", filepath.Join(deep, "link")))
	if err != nil {
		t.Fatal(err)
	}
	if n := p.sizeOf(dir); n < 4 || n > 1<<20 {
		t.Errorf("%d bytes", n)
	}
	for range maxDepth {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o750); err != nil {
		t.Fatal(err)
	}
	p.sizeOf(dir)
	if _, err := os.Stat(filepath.Join(dir, dirWork)); !os.IsNotExist(err) {
		t.Errorf("the worker's files are left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, fileStdout)); err != nil {
		t.Errorf("the output was removed: %v", err)
	}
}
