package agent

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// The content of a working directory or volume is not trusted: a worker can make it deep and large,
// and link to any file. The functions of this file never leave the directory, and their
// memory and number of open files do not depend on its content.

const (
	// treeBatch is the number of entries that are read at a time.
	treeBatch = 256
	// maxEntries and maxDepth limit the part of a tree that treeSize visits. maxDepth also
	// limits ownTree.
	maxEntries = 100_000
	maxDepth   = 64
)

// treeSize returns the disk space of the files in a directory, at most until it has visited
// the given number of entries. If the tree is larger or deeper than the limits, entries is
// negative afterwards. treeSize skips files that cannot be read.
func treeSize(root *os.Root, entries *int, depth int) (bytes int64) {
	if depth == 0 {
		*entries = -1
		return 0
	}
	dir, err := root.Open(".")
	if err != nil {
		return 0
	}
	defer dir.Close() //nolint:errcheck // only read
	for *entries >= 0 {
		batch, err := dir.Readdirnames(treeBatch)
		*entries -= len(batch)
		for _, name := range batch {
			info, err := root.Lstat(name)
			if err != nil {
				continue
			}
			if info.Mode().IsRegular() {
				// A sparse file takes less space than its size.
				bytes += min(info.Size(), info.Sys().(*syscall.Stat_t).Blocks*512+4096)
			} else if info.IsDir() && *entries >= 0 {
				if sub, err := root.OpenRoot(name); err == nil {
					bytes += treeSize(sub, entries, depth-1)
					_ = sub.Close()
				}
			}
		}
		if err != nil {
			return bytes
		}
	}
	return bytes
}

// ownTree makes a user the owner of everything in a directory. It skips a file with several
// links that belongs to no worker: a worker can link to such a file outside its directory.
func ownTree(root *os.Root, u user, workers UIDRange, depth int) error {
	if depth == 0 {
		return errors.New("has too many levels of directories")
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	for {
		batch, err := dir.Readdirnames(treeBatch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range batch {
			if err := ownEntry(root, name, u, workers, depth); err != nil {
				return err
			}
		}
	}
}

func ownEntry(root *os.Root, name string, u user, workers UIDRange, depth int) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	is := info.Sys().(*syscall.Stat_t)
	linked := !info.IsDir() && is.Nlink > 1 && (is.Uid < workers.First || is.Uid > workers.Last)
	if (is.Uid != u.ID || is.Gid != u.ID) && !linked {
		if err := root.Lchown(name, int(u.ID), int(u.ID)); err != nil {
			return err
		}
	}
	if !info.IsDir() {
		return nil
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // only a handle
	return ownTree(sub, u, workers, depth-1)
}

// removeTree removes a directory in a parent directory, or returns an error if stop is
// closed first.
func removeTree(parent, name string, stop <-chan struct{}) error {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a handle
	if err := root.Remove(name); err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := emptyDir(root, name, name, stop); err != nil {
		return err
	}
	return root.Remove(name)
}

// emptyDir removes what is in a directory, which is top or a directory in top. It moves the
// directories of the second level up to top. So it needs no long path and no deep recursion,
// however deep the tree is.
func emptyDir(root *os.Root, name, top string, stop <-chan struct{}) error {
	for {
		dir, err := root.Open(name)
		if err != nil {
			return err
		}
		batch, err := dir.Readdirnames(treeBatch)
		_ = dir.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, entry := range batch {
			select {
			case <-stop:
				return errors.New("the agent stops")
			default:
			}
			path := filepath.Join(name, entry)
			if root.Remove(path) == nil {
				continue
			}
			// It is a directory that is not empty. Its mode may deny access, also to its owner.
			err := root.Chmod(path, 0o700)
			switch {
			case err != nil:
			case name != top:
				err = root.Rename(path, filepath.Join(top, rand.Text()))
			default:
				if err = emptyDir(root, path, top, stop); err == nil {
					err = root.Remove(path) // fails for a mount point
				}
			}
			if err != nil {
				return err
			}
		}
	}
}
