package restore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/store"
)

// Backup writes the data of etcd as of one revision to a new file and returns the size of
// the file in bytes. If Backup fails, there is no file. A device or a pipe, such as /dev/stdout, gets
// the data directly. etcd keeps working during the backup. The error is Unavailable if etcd sends no
// data for the time silence.
func Backup(ctx context.Context, s *store.Etcd, file string, silence time.Duration) (size int64, err error) {
	switch info, err := os.Stat(file); {
	case err == nil && !info.Mode().IsRegular() && !info.IsDir():
		stream, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return 0, cannot(err, "write", file)
		}
		size, err := Stream(ctx, s, stream, file, silence)
		if closed := stream.Close(); err == nil && closed != nil {
			return 0, cannot(closed, "write", file)
		}
		return size, err
	case err == nil:
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid, "%s already exists", file)
	}
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return 0, cannot(err, "write", file)
	}
	defer os.Remove(part.Name())
	if size, err = Stream(ctx, s, part, file, silence); err != nil {
		part.Close() //nolint:errcheck // the file is removed
		return 0, err
	}
	if err = errors.Join(part.Sync(), part.Close()); err == nil {
		err = os.Link(part.Name(), file)
	}
	if err != nil {
		return 0, cannot(err, "write", file)
	}
	return size, nil
}

// Stream writes the data of etcd as of one revision to w, which has a name, and returns its size in
// bytes. If Stream fails, what it has written is not a backup. The error is Unavailable if etcd sends no
// data for the time silence.
func Stream(ctx context.Context, s *store.Etcd, w io.Writer, name string, silence time.Duration) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := running.EtcdSilent(s.Client().Endpoints(), silence)
	timer := time.AfterFunc(silence, func() { cancel(silent) })
	defer timer.Stop()
	snapshot, err := s.Client().Snapshot(ctx)
	if err != nil {
		if errors.Is(context.Cause(ctx), silent) {
			return 0, silent
		}
		if classified := store.Classify(err); isRefused(classified) {
			return 0, classified
		}
		return 0, fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd sends no snapshot: %v", err)
	}
	defer snapshot.Close()
	from := &activity{Reader: snapshot, timer: timer, silence: silence}
	size, err := io.Copy(w, from)
	switch {
	case err == nil:
		return size, nil
	case errors.Is(context.Cause(ctx), silent):
		return 0, silent
	case isRefused(store.Classify(from.failed)):
		return 0, store.Classify(from.failed)
	case from.failed != nil:
		return 0, cannot(from.failed, "read", "the whole snapshot from etcd")
	}
	return 0, cannot(err, "write", name)
}

// isRefused reports whether etcd has refused the login or the request of a command.
func isRefused(err error) bool {
	return errors.Is(err, store.ErrLogin) || errors.Is(err, store.ErrDenied)
}

// activity is a reader that restarts a timer whenever it reads data, and keeps the error of the read
// that failed.
type activity struct {
	io.Reader
	timer   *time.Timer
	silence time.Duration
	failed  error
}

func (h *activity) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.timer.Reset(h.silence)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // readers return io.EOF itself
		h.failed = err
	}
	return n, err
}

// cannot returns the error of an operation that the host does not permit, for example
// because a file is missing or a disk is full.
func cannot(cause error, verb, object string) error {
	return fault.New(fault.Precondition, fault.ReasonInvalid, "cannot %s %s: %v", verb, object, cause).Because(cause)
}
