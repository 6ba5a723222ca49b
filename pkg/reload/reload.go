// Package reload keeps using the last valid content of a set of files when the files
// change, so that certificates and access rules change without a restart, and a mistake in
// them stops nothing.
package reload

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Interval is the time between two reads of the files.
const Interval = time.Second

// maxFile is the maximum size of a file, in bytes.
const maxFile = 16 << 20

// Watch reads files and passes their contents to use, now and whenever a content has
// changed. It returns the error of the first read or of the first use. Later errors are
// only logged, once for each content: then use must have changed nothing. Files that belong
// together need not change at the same time: Watch logs an error only if the same content
// is still invalid at the next read. stop ends the reads and waits for a use in progress.
func Watch(log *slog.Logger, what string, files []string, use func(contents [][]byte) error) (stop func(), err error) {
	last, err := readAll(files)
	if err != nil {
		return nil, err
	}
	if err := use(last); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(Interval)
		defer tick.Stop()
		failed, unreadable := false, false
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			contents, err := readAll(files)
			if err != nil {
				if !unreadable {
					log.Error("cannot read the files of "+what+"; the last valid content stays in use", "error", err)
				}
				unreadable = true
				continue
			}
			changed, again := unreadable || !equal(contents, last), failed
			failed, unreadable, last = false, false, contents
			if !changed && !again {
				continue
			}
			switch err := use(contents); {
			case err == nil:
				log.Info("reloaded "+what, "files", files)
			case changed:
				failed = true
			default:
				log.Error("the new content of "+what+" is invalid; the last valid content stays in use", "error", err)
			}
		}
	}()
	return func() { cancel(); <-ended }, nil
}

func readAll(files []string) ([][]byte, error) {
	contents := make([][]byte, len(files))
	for i, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxFile {
			return nil, fmt.Errorf("%s has %d bytes; at most %d are allowed", name, info.Size(), maxFile)
		}
		if contents[i], err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

func equal(a, b [][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
