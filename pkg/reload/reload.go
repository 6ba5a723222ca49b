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

// Watch reads files and passes their contents to use, now and whenever two successive reads
// return the same changed contents. A file that is being written, and files that belong
// together and change one after the other, therefore need not be valid at every read. Watch
// returns the error of the first read or of the first use. Later errors are only logged, once
// for each content: then use must have changed nothing. stop ends the reads and waits for a
// use in progress.
func Watch(log *slog.Logger, what string, files []string, use func(contents [][]byte) error) (stop func(), err error) {
	last, err := readAll(files)
	if err != nil {
		return nil, err
	}
	if err := use(last); err != nil {
		return nil, err
	}
	changed, unreadable := false, false
	return Every(Interval, func() {
		contents, err := readAll(files)
		if err != nil {
			if !unreadable {
				log.Error("cannot read "+what+"; the last valid content stays in use", "error", err)
			}
			unreadable = true
			return
		}
		if unreadable || !equal(contents, last) {
			changed, unreadable, last = true, false, contents
			return // until the next read returns the same
		}
		if !changed {
			return
		}
		changed = false
		if err := use(contents); err != nil {
			log.Error("the new content of "+what+" is invalid; the last valid content stays in use", "error", err)
		} else {
			log.Info("reloaded "+what, "files", files)
		}
	}), nil
}

// Every calls a function at an interval, until stop. stop waits for a call in progress.
func Every(interval time.Duration, call func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				call()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
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
