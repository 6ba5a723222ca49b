package agent

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// logLimit bounds the output of a worker: each of its streams.
type logLimit struct {
	// MaxBytes is how large a file gets, Keep how many there are of a stream, the
	// one that is written to included.
	MaxBytes int64
	Keep     int
}

// rotated is a stream of output in files of bounded size: name is the newest,
// name.1 the one before it, and so on. It never fails: what a full disk has no
// room for is counted, and told where the output goes on.
type rotated struct {
	name  string
	limit logLimit
	file  *os.File
	size  int64
	lost  int64
}

// openRotated opens the stream of a worker that was never run before.
func openRotated(name string, limit logLimit) (*rotated, error) {
	r := &rotated{name: name, limit: limit}
	return r, r.open()
}

func (r *rotated) open() (err error) {
	r.file, err = os.OpenFile(r.name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	return err
}

// write takes all of the output, wherever that breaks a line.
func (r *rotated) write(text []byte) {
	if r.lost > 0 {
		note := fmt.Appendf(nil, "\nberth: %d bytes are missing here: there was no room for them\n", r.lost)
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

// put writes to the newest file, and answers how much of it there was room for.
func (r *rotated) put(part []byte) int {
	if r.file == nil && r.open() != nil {
		return 0
	}
	n, _ := r.file.Write(part)
	r.size += int64(n)
	return n
}

// rotate gives the files the names of those before them, but for the oldest: that
// one goes, and makes room.
func (r *rotated) rotate() {
	if r.file != nil {
		_ = r.file.Close() // What was written is there, or was lost before.
	}
	for n := r.limit.Keep - 1; n > 0; n-- {
		_ = os.Rename(r.numbered(n-1), r.numbered(n)) // Or there are fewer yet.
	}
	r.file, r.size = nil, 0
}

func (r *rotated) numbered(n int) string {
	if n == 0 {
		return r.name
	}
	return r.name + "." + strconv.Itoa(n)
}

// drainFor is how long the output may go on once all of a worker is gone: what
// is still in the pipe, and what a stranger writes that it handed the pipe to.
const drainFor = time.Second

// output is how a worker's streams come to files: through its keeper, which
// bounds them, also while no agent is there.
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

// pump copies until nobody can write any more, or the drain is over. The worker
// has its own end of the pipe by now.
func (o *output) pump() {
	_ = o.write.Close() // A copy of the worker's.
	go func() {
		defer close(o.done)
		for buffer := make([]byte, 32<<10); ; {
			n, err := o.read.Read(buffer)
			o.to.write(buffer[:n])
			if err != nil {
				o.to.write(nil) // The note of what is missing, if there is any.
				return
			}
		}
	}()
}

// drain waits for the rest.
func (o *output) drain() {
	_ = o.read.SetReadDeadline(time.Now().Add(drainFor)) // A pipe has deadlines.
	<-o.done
}
