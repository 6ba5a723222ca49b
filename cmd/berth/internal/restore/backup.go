package restore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/store"
)

// Backup writes all that etcd holds to a file, whole or not at all, and answers
// its size in bytes. It refuses to overwrite one. The copy is of one revision;
// etcd goes on meanwhile. It fails with Unavailable once etcd has sent nothing
// for the given time.
func Backup(ctx context.Context, s *store.Etcd, file string, silence time.Duration) (size int64, err error) {
	if _, err := os.Lstat(file); err == nil {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid, "%s is there already", file)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := fault.New(fault.Unavailable, fault.ReasonUnavailable, "no answer from etcd at %s within %v", strings.Join(s.Client().Endpoints(), ","), silence)
	timer := time.AfterFunc(silence, func() { cancel(silent) })
	defer timer.Stop()
	snapshot, err := s.Client().Snapshot(ctx)
	if err != nil {
		if errors.Is(context.Cause(ctx), silent) {
			return 0, silent
		}
		return 0, fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd gives no snapshot: %v", err)
	}
	defer snapshot.Close()
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return 0, cannot(err, "%s cannot be written", file)
	}
	defer os.Remove(part.Name())
	size, err = io.Copy(part, &heard{snapshot, timer, silence})
	if err != nil && errors.Is(context.Cause(ctx), silent) {
		part.Close() //nolint:errcheck // it is removed
		return 0, silent
	}
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return 0, cannot(err, "the snapshot is not complete")
	}
	if err := os.Link(part.Name(), file); err != nil {
		return 0, cannot(err, "%s cannot be written", file)
	}
	return size, nil
}

// heard restarts a timer whenever something is read.
type heard struct {
	io.Reader
	timer   *time.Timer
	silence time.Duration
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.timer.Reset(h.silence)
	}
	return n, err
}

// cannot is an error of the host: a file that is not there, a disk that is full.
func cannot(cause error, format string, args ...any) error {
	f := fault.New(fault.Precondition, fault.ReasonInvalid, format, args...)
	f.Message += ": " + cause.Error()
	return f.Because(cause)
}
