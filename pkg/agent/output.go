package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// logLimit limits the files of each output stream of a worker.
type logLimit struct {
	// MaxBytes is the maximum size of a file. Keep is the maximum number of files of a
	// stream, including the current file.
	MaxBytes int64
	Keep     int
}

// rotated writes an output stream to files of bounded size: name is the newest file,
// name.1 is the file before it, and so on. Writing never fails. If the disk is full,
// rotated counts the lost bytes and writes their number where the output continues.
type rotated struct {
	name  string
	limit logLimit
	file  *os.File
	size  int64
	lost  int64
	// mark is the file of at, for readers of the output.
	mark *os.File
	at   rotation
}

// openRotated opens the stream of a new worker.
func openRotated(name string, limit logLimit) (*rotated, error) {
	r := &rotated{name: name, limit: limit}
	var err error
	if r.mark, err = os.OpenFile(rotationOf(name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640); err != nil {
		return nil, err
	}
	if err := r.writeMark(); err != nil {
		return nil, err
	}
	return r, r.open()
}

// rotation is the content of the file with the rotation of an output stream. A reader
// compares it before and after it reads the files of the stream, and so knows which part
// of the output it has read.
type rotation struct {
	// changes counts the begins and ends of rotations: it is odd during a rotation.
	changes int64
	// base is the number of bytes that were written to older files than the newest.
	base int64
}

// rotationFormat has a fixed length, so that rotated overwrites the file in place. This
// needs no disk space.
const rotationFormat = "%019d %019d\n"

// rotationOf returns the name of the file with the rotation of the stream with a name.
func rotationOf(name string) string {
	return filepath.Join(filepath.Dir(name), "rotation-"+filepath.Base(name))
}

func (r *rotated) writeMark() error {
	_, err := r.mark.WriteAt(fmt.Appendf(nil, rotationFormat, r.at.changes, r.at.base), 0)
	return err
}

func (r *rotated) open() (err error) {
	r.file, err = os.OpenFile(r.name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	return err
}

// write writes the text, and rotates files as needed. A file may end in the middle of a
// line.
func (r *rotated) write(text []byte) {
	if r.lost > 0 {
		note := fmt.Appendf(nil, "\nberth: %d bytes are missing here: the disk was full\n", r.lost)
		if r.put(note) == len(note) {
			r.lost = 0
		}
	}
	for len(text) > 0 {
		if r.size >= r.limit.MaxBytes {
			r.rotate()
		}
		part := text[:min(int64(len(text)), r.limit.MaxBytes-r.size)]
		r.lost += int64(len(part) - r.put(part))
		text = text[len(part):]
	}
}

// put writes to the newest file and returns the number of bytes written.
func (r *rotated) put(part []byte) int {
	if r.file == nil && r.open() != nil {
		return 0
	}
	n, _ := r.file.Write(part)
	r.size += int64(n)
	return n
}

// rotate renames each file to the next number and drops the oldest one.
func (r *rotated) rotate() {
	if r.file != nil {
		_ = r.file.Close() // put has counted every failed write.
	}
	r.at.changes++
	_ = r.writeMark() // see below
	for n := r.limit.Keep - 1; n > 0; n-- {
		_ = os.Rename(r.numbered(n-1), r.numbered(n)) // The older file may not exist yet.
	}
	_ = os.Remove(r.name) // It exists if it is the only file.
	r.at.base += r.size
	r.file, r.size = nil, 0
	r.at.changes++
	// If this fails, readers return another part of the output than they state. The files
	// still have all output.
	_ = r.writeMark()
}

func (r *rotated) numbered(n int) string { return numbered(r.name, n) }

// numbered returns the name of a file of an output stream; 0 is the newest file.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	return name + "." + strconv.Itoa(n)
}

// drainFor is how long the keeper reads output after it killed all processes of a worker.
// It reads the rest in the pipe, and the output of any other process to which the worker
// passed the pipe.
const drainFor = time.Second

// output copies an output stream of a worker to files. The keeper does this, so that the
// size limits also hold while no agent runs.
type output struct {
	read, write *os.File
	to          *rotated
	done        chan struct{}
}

func newOutput(name string, limit logLimit) (*output, error) {
	to, err := openRotated(name, limit)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &output{read: read, write: write, to: to, done: make(chan struct{})}, nil
}

// pump starts a goroutine that copies the output until the pipe has no writer or drain's
// deadline passes. The worker must have started.
func (o *output) pump() {
	_ = o.write.Close() // The worker has its own copy of the write end.
	go func() {
		defer close(o.done)
		for buffer := make([]byte, 32<<10); ; {
			n, err := o.read.Read(buffer)
			o.to.write(buffer[:n])
			if err != nil {
				o.to.write(nil) // This writes the number of lost bytes, if any.
				return
			}
		}
	}()
}

// drain waits at most drainFor for the rest of the output.
func (o *output) drain() {
	_ = o.read.SetReadDeadline(time.Now().Add(drainFor)) // A pipe supports deadlines.
	<-o.done
}
