// Package reload keeps using the last valid content of a set of files when the files
// change, so that certificates and access rules change without a restart, and a mistake in
// them stops nothing.
package reload

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"sync"
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
// for each content: then use must have changed nothing. Now makes Watch read the files at once.
// stop ends the reads and waits for a use in progress.
func Watch(log *slog.Logger, what string, files []string, use func(contents [][]byte) error) (stop func(), err error) {
	last, err := readAll(files)
	if err != nil {
		return nil, err
	}
	if err := use(last); err != nil {
		return nil, err
	}
	changed, unreadable := false, false
	// The caller of Now has written the files, so one read is enough.
	read := func(requested bool) {
		contents, err := readAll(files)
		switch {
		case err != nil:
			if requested || !unreadable {
				log.Error("cannot read "+what+"; the last valid content stays in use", "error", err)
			}
			unreadable = true
			return
		case requested:
		case unreadable || !equal(contents, last):
			changed, unreadable, last = true, false, contents
			return // until the next read returns the same
		case !changed:
			return
		}
		changed, unreadable, last = false, false, contents
		content, done := "the new content of "+what, "reloaded "+what
		if requested { // it may be the same content
			content, done = "the content of "+what, "read "+what+" again on request"
		}
		if err := use(contents); err != nil {
			log.Error(content+" is invalid; the last valid content stays in use", "error", err)
		} else {
			log.Info(done, "files", files)
		}
	}
	requests := make(chan struct{}, 1)
	forget := OnNow(func() {
		select {
		case requests <- struct{}{}:
		default: // the read that is pending begins later
		}
	})
	end := every(Interval, requests, read)
	return func() { forget(); end() }, nil
}

var (
	requestsMu sync.Mutex
	onNow      = map[*func()]struct{}{}
)

// Now makes every Watch of the process read its files at once, and use them without a second
// read, also if they have not changed. It does not wait for the reads. It calls the functions of
// OnNow and waits for them.
func Now() {
	requestsMu.Lock()
	defer requestsMu.Unlock()
	for call := range onNow {
		(*call)()
	}
}

// OnNow makes Now call a function, which must not call this package, until forget. forget waits
// for a call in progress.
func OnNow(call func()) (forget func()) {
	requestsMu.Lock()
	defer requestsMu.Unlock()
	onNow[&call] = struct{}{}
	return func() {
		requestsMu.Lock()
		defer requestsMu.Unlock()
		delete(onNow, &call)
	}
}

// Every calls a function at an interval, until stop. stop waits for a call in progress.
func Every(interval time.Duration, call func()) (stop func()) {
	return every(interval, nil, func(bool) { call() })
}

// every calls a function at an interval and at each request.
func every(interval time.Duration, requests <-chan struct{}, call func(requested bool)) (stop func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				call(false)
			case <-requests:
				call(true)
			case <-ending:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(ending); <-ended })
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
