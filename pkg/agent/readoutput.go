package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// The limits of an agent on reading output, so that readers cannot slow its host down.
const (
	// maxOutputReads is the maximum number of reads in progress, and maxOutputWaits how many
	// of them may wait for output. So readers that follow do not exclude the others.
	maxOutputReads = 16
	maxOutputWaits = 8
	// outputRate is the maximum number of bytes of all answers in a second.
	outputRate = 2 << 20
	// outputTick is the interval at which a waiting read looks for output. A read that finds
	// output at the end waits one more interval, so that a worker that writes line by line
	// does not cause a call for each line.
	outputTick = 100 * time.Millisecond
)

// newOutputLimiter returns the limiter of the answers of an agent.
func newOutputLimiter() *rate.Limiter { return rate.NewLimiter(outputRate, wire.MaxTail) }

// outputKeeper is a driver that keeps the output of its workers in files.
type outputKeeper interface {
	// workersDir returns the directory with the directories of the workers; see workerPath.
	workersDir() string
}

func (p *Process) workersDir() string { return filepath.Join(p.cfg.Dir, "workers") }

// ReadOutput returns a part of the output of a worker. Errors are *fault.Error.
func (a *Agent) ReadOutput(ctx context.Context, req *controlv1.ReadWorkerOutputRequest) (*berthv1.ReadOutputAnswer,
	error) {
	request := req.GetRequest()
	done, err := a.admitRead(req)
	if err != nil {
		return nil, err
	}
	defer done()
	keeper, ok := a.cfg.Driver.(outputKeeper)
	if !ok {
		return nil, fault.New(fault.Precondition, fault.ReasonUnsupported,
			"executor %s does not keep the output of its workers", a.cfg.ID)
	}
	id, dir, err := findWorker(keeper.workersDir(), request)
	if errors.Is(err, fs.ErrNotExist) {
		return a.withoutOutput(request)
	}
	if err != nil {
		return nil, a.outputFailed(err)
	}
	defer dir.Close() //nolint:errcheck // only a handle
	part, err := a.awaitOutput(ctx, id, dir, request)
	if err != nil {
		return nil, err
	}
	if err := a.outputs.WaitN(ctx, len(part.Data)); err != nil {
		return nil, fault.New(fault.Unavailable, fault.ReasonOverloaded,
			"executor %s sends at most %d bytes of output per second: repeat the call", a.cfg.ID, outputRate)
	}
	part.Executor, part.Number, part.Epoch = a.cfg.ID, id.ID.Number, id.Epoch
	return part, nil
}

// admitRead checks a request and counts the read. The caller must call done after the
// read.
func (a *Agent) admitRead(req *controlv1.ReadWorkerOutputRequest) (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ledger.permit(req.GetNonce()); err != nil {
		return nil, err
	}
	if err := a.ledger.current(req.GetIncarnation()); err != nil {
		return nil, err
	}
	if err := wire.CheckReadOutput(req.GetRequest()); err != nil {
		return nil, err
	}
	if a.closed {
		return nil, a.errEnding()
	}
	if a.outputReads >= maxOutputReads {
		return nil, a.errReaders("readers of output", maxOutputReads)
	}
	follow := req.GetRequest().GetFollow()
	if follow && a.outputWaits >= maxOutputWaits {
		return nil, a.errReaders("readers that follow output", maxOutputWaits)
	}
	count := func(n int) {
		a.outputReads += n
		if follow {
			a.outputWaits += n
		}
	}
	count(1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		count(-1)
	}, nil
}

func (a *Agent) errReaders(kind string, most int) error {
	return fault.New(fault.Unavailable, fault.ReasonOverloaded, "executor %s has %d %s, its maximum", a.cfg.ID, most, kind)
}

// withoutOutput returns the answer for a worker that has no directory.
func (a *Agent) withoutOutput(r *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	worker := model.Worker{Job: r.GetJob(), Stage: r.GetStage(), ID: model.WorkerID{Index: r.GetIndex(),
		Number: r.GetNumber()}}
	a.mu.Lock()
	starting := a.starting[identity{worker, r.GetEpoch()}] != nil
	a.mu.Unlock()
	if starting {
		return &berthv1.ReadOutputAnswer{Executor: a.cfg.ID, Number: r.GetNumber(), Epoch: r.GetEpoch()}, nil
	}
	return nil, fault.New(fault.NotFound, fault.ReasonNotFound,
		"executor %s has no output of %s/%s/%d: the worker has not started there, or its files were removed",
		a.cfg.ID, r.GetJob(), r.GetStage(), r.GetIndex()).With("executor", a.cfg.ID)
}

// outputFailed returns the error of a read of files that failed.
func (a *Agent) outputFailed(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	return fault.New(fault.NotFound, fault.ReasonNotFound, "executor %s cannot read the output: %v", a.cfg.ID, err).
		With("executor", a.cfg.ID)
}

// awaitOutput reads a part of the output. A request to follow waits while there is none.
func (a *Agent) awaitOutput(ctx context.Context, id identity, dir *os.Root,
	r *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	name := fileStdout
	if r.GetStream() == berthv1.ReadOutputRequest_STDERR {
		name = fileStderr
	}
	start := startOf(r)
	until := time.Now().Add(wire.OutputWait)
	for found := false; ; {
		ended, closed := a.outputEnded(id, dir) // before the read: later output is in a later part
		part, err := readOutput(dir, name, start, ended)
		if err != nil {
			return nil, a.outputFailed(err)
		}
		// After this look, tail does not move with the end of the output.
		start = position{offset: part.Offset}
		more := part.Offset+int64(len(part.Data)) < part.End
		part.Complete = ended && !more
		if !r.GetFollow() || ended || more || closed || found || !time.Now().Before(until) {
			return part, nil
		}
		found = len(part.Data) > 0
		select {
		case <-time.After(outputTick):
		case <-ctx.Done():
			return part, nil
		}
	}
}

// outputEnded reports whether a worker writes no more output, and whether the agent is shut
// down. A keeper writes the verdict of a worker after all its output.
func (a *Agent) outputEnded(id identity, dir *os.Root) (ended, closed bool) {
	a.mu.Lock()
	e := a.ledger.entries[id]
	live := e != nil && !e.state.Terminal()
	closed = a.closed
	a.mu.Unlock()
	_, err := dir.Lstat(fileExit)
	return !live || err == nil, closed
}

// findWorker opens the directory of the newest worker that matches a request. A name in the
// request is never a path, and the directory of a worker is never a symbolic link.
func findWorker(workers string, r *berthv1.ReadOutputRequest) (id identity, dir *os.Root, err error) {
	root, err := os.OpenRoot(workers)
	if err != nil {
		return id, nil, err
	}
	defer root.Close() //nolint:errcheck // only a handle
	job, err := openDir(root, r.GetJob())
	if err != nil {
		return id, nil, err
	}
	defer job.Close() //nolint:errcheck // only a handle
	list, err := job.Open(".")
	if err != nil {
		return id, nil, err
	}
	names, err := list.Readdirnames(-1)
	if err := errors.Join(err, list.Close()); err != nil {
		return id, nil, err
	}
	for _, name := range names {
		found, ok := parseWorker(name, r)
		if ok && (found.ID.Number > id.ID.Number || found.ID.Number == id.ID.Number && found.Epoch > id.Epoch) {
			id = found
		}
	}
	if id.Epoch == 0 {
		return id, nil, fs.ErrNotExist
	}
	dir, err = openDir(job, filepath.Base(workerPath("", id)))
	return id, dir, err
}

// openDir opens a directory that is not a symbolic link.
func openDir(root *os.Root, name string) (*os.Root, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", name)
	}
	return root.OpenRoot(name)
}

// parseWorker returns the worker whose directory has the name, if the worker matches the
// request.
func parseWorker(name string, r *berthv1.ReadOutputRequest) (id identity, ok bool) {
	rest, found := strings.CutPrefix(name, fmt.Sprintf("%s.%d.", r.GetStage(), r.GetIndex()))
	number, epoch, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseInt(number, 10, 32)
	e, err2 := strconv.ParseInt(epoch, 10, 64)
	id = identity{model.Worker{Job: r.GetJob(), Stage: r.GetStage(),
		ID: model.WorkerID{Index: r.GetIndex(), Number: int32(n)}}, e}
	return id, found && err == nil && err2 == nil && n >= 0 && e > 0 && name == filepath.Base(workerPath("", id)) &&
		(r.GetNumber() == 0 || r.GetNumber() == int32(n)) && (r.GetEpoch() == 0 || r.GetEpoch() == e)
}

// position is where a read begins: at an offset, or with a negative offset at a number of
// bytes before the end.
type position struct{ offset, tail int64 }

func startOf(r *berthv1.ReadOutputRequest) position {
	switch {
	case r.Offset != nil:
		return position{offset: r.GetOffset()}
	case r.Tail != nil:
		return position{offset: -1, tail: int64(r.GetTail())}
	}
	return position{offset: -1, tail: wire.DefaultTail}
}

// of returns the offset in an output that ends at end.
func (p position) of(end int64) int64 {
	if p.offset < 0 {
		return max(0, end-p.tail)
	}
	return p.offset
}

// rotationTries is the number of times that readOutput reads a stream that is being
// rotated.
const rotationTries = 8

// readOutput reads a part of the output stream with a name in a worker's directory. The
// keeper may rotate the files meanwhile; then readOutput reads them again. If the worker has
// ended, a rotation in progress never ends, because its keeper was killed.
func readOutput(dir *os.Root, name string, start position, ended bool) (*berthv1.ReadOutputAnswer, error) {
	for try := range rotationTries {
		before, known, err := readRotation(dir, name)
		if err != nil {
			return nil, err
		}
		part, err := readFiles(dir, name, before.base, known, start)
		after, _, errAfter := readRotation(dir, name)
		if errAfter != nil {
			return nil, errAfter
		}
		if before == after && (before.changes%2 == 0 || ended) {
			return part, err
		}
		time.Sleep(time.Millisecond << try)
	}
	return nil, fault.New(fault.Unavailable, fault.ReasonOverloaded,
		"the worker writes faster than its output can be read: repeat the call")
}

// readRotation returns the rotation of a stream. It is not known for workers that a keeper
// of an older version runs.
func readRotation(dir *os.Root, name string) (at rotation, known bool, err error) {
	file, err := openRegular(dir, rotationOf(name))
	if errors.Is(err, fs.ErrNotExist) {
		return at, false, nil
	}
	if err != nil {
		return at, false, err
	}
	defer file.Close() //nolint:errcheck // only read
	text := make([]byte, len(fmt.Sprintf(rotationFormat, 0, 0)))
	if _, err := file.ReadAt(text, 0); err != nil {
		return at, false, err
	}
	_, err = fmt.Sscanf(string(text), rotationFormat, &at.changes, &at.base)
	return at, err == nil, err
}

// readFiles reads from the file that has the start. base is the position of the newest file
// in the output; if it is not known, the oldest file counts as the begin of the output.
func readFiles(dir *os.Root, name string, base int64, known bool, start position) (*berthv1.ReadOutputAnswer, error) {
	newest, err := sizeOfFile(dir, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for n := 1; !known; n++ {
		size, err := sizeOfFile(dir, numbered(name, n))
		if err != nil {
			break
		}
		base += size
	}
	end := base + newest
	offset := start.of(end)
	if offset > end {
		return nil, fault.BadField(fault.ReasonInvalid, "offset", "must be at most the end of the output, %d, got %d", end,
			offset)
	}
	n := 0
	for base > offset {
		size, err := sizeOfFile(dir, numbered(name, n+1))
		if errors.Is(err, fs.ErrNotExist) {
			offset = base // the older files were removed
			break
		}
		if err != nil {
			return nil, err
		}
		n++
		base -= size
	}
	part := &berthv1.ReadOutputAnswer{Offset: offset, End: end}
	if offset == end {
		return part, nil
	}
	file, err := openRegular(dir, numbered(name, n))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	part.Data = make([]byte, min(wire.MaxOutput, end-offset))
	read, err := file.ReadAt(part.Data, offset-base)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	part.Data = part.Data[:read]
	return part, nil
}

func sizeOfFile(dir *os.Root, name string) (int64, error) {
	info, err := dir.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(name)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func notRegular(name string) error { return fmt.Errorf("%s is not a regular file", name) }

// openRegular opens a regular file. A worker may be able to write to its directory, so the
// name may have become a link or a pipe. Opening it must not block or leave the directory.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	file, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	here, err := dir.Lstat(name)
	if err == nil {
		var opened fs.FileInfo
		if opened, err = file.Stat(); err == nil && (!here.Mode().IsRegular() || !os.SameFile(here, opened)) {
			err = notRegular(name)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
