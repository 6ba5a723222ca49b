package agent

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// The content of a working directory is not trusted: a worker can make it deep and large,
// and link to any file. The functions of this file never leave the directory, and their
// memory and number of open files do not depend on its content.

const (
	// treeBatch is the number of entries that are read at a time.
	treeBatch = 256
	// maxEntries and maxDepth limit the part of a tree that treeSize visits.
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

// removeTree removes a directory in a parent directory, or returns an error if stop is
// closed first. It moves the directories of the second level to the first before it visits
// them. So it never needs a long path, however deep the tree is.
func removeTree(parent, name string, stop <-chan struct{}) error {
	in, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only a handle
	if info, err := in.Lstat(name); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil || !info.IsDir() {
		return errors.Join(err, in.Remove(name))
	}
	root, err := in.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a handle
	err = emptyDir(root, stop, func(first string) error {
		sub, err := root.OpenRoot(first)
		if err != nil {
			return err
		}
		defer sub.Close() //nolint:errcheck // only a handle
		return emptyDir(sub, stop, func(second string) error {
			return root.Rename(filepath.Join(first, second), rand.Text())
		})
	})
	return errors.Join(err, in.Remove(name))
}

// emptyDir removes the entries of a directory. It calls empty for each directory that is
// not empty, and then removes it.
func emptyDir(root *os.Root, stop <-chan struct{}, empty func(name string) error) error {
	for {
		dir, err := root.Open(".")
		if err != nil {
			return err
		}
		batch, err := dir.Readdirnames(treeBatch)
		_ = dir.Close()
		if len(batch) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, name := range batch {
			select {
			case <-stop:
				return errors.New("the agent stops")
			default:
			}
			if root.Remove(name) == nil {
				continue
			}
			info, err := root.Lstat(name)
			if err == nil && info.IsDir() {
				_ = root.Chmod(name, 0o700) // The worker may have made it unreadable for its own user.
				err = empty(name)
			}
			if err == nil {
				err = root.Remove(name)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
}
