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
// the file in bytes. If Backup fails, there is no file. etcd keeps working during the
// backup. The error is Unavailable if etcd sends no data for the time silence.
func Backup(ctx context.Context, s *store.Etcd, file string, silence time.Duration) (size int64, err error) {
	if _, err := os.Lstat(file); err == nil {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid, "%s already exists", file)
	}
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
		return 0, fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd sends no snapshot: %v", err)
	}
	defer snapshot.Close()
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return 0, cannot(err, "write", file)
	}
	defer os.Remove(part.Name())
	size, err = io.Copy(part, &activity{snapshot, timer, silence})
	if err != nil && errors.Is(context.Cause(ctx), silent) {
		part.Close() //nolint:errcheck // the file is removed
		return 0, silent
	}
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return 0, cannot(err, "read", "the whole snapshot from etcd")
	}
	if err := os.Link(part.Name(), file); err != nil {
		return 0, cannot(err, "write", file)
	}
	return size, nil
}

// activity is a reader that restarts a timer whenever it reads data.
type activity struct {
	io.Reader
	timer   *time.Timer
	silence time.Duration
}

func (h *activity) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.timer.Reset(h.silence)
	}
	return n, err
}

// cannot returns the error of an operation that the host does not permit, for example
// because a file is missing or a disk is full.
func cannot(cause error, verb, object string) error {
	return fault.New(fault.Precondition, fault.ReasonInvalid, "cannot %s %s: %v", verb, object, cause).Because(cause)
}
