package restore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/store"
)

// Backup writes all that etcd holds to a file, whole or not at all, and answers
// its size in bytes. It refuses to overwrite one. The copy is of one revision;
// etcd goes on meanwhile.
func Backup(ctx context.Context, s *store.Etcd, file string) (size int64, err error) {
	if _, err := os.Lstat(file); err == nil {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid, "%s is there already", file)
	}
	snapshot, err := s.Client().Snapshot(ctx)
	if err != nil {
		return 0, fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd gives no snapshot: %v", err)
	}
	defer snapshot.Close()
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return 0, cannot(err, "%s cannot be written", file)
	}
	defer os.Remove(part.Name())
	size, err = io.Copy(part, snapshot)
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

// cannot is an error of the host: a file that is not there, a disk that is full.
func cannot(cause error, format string, args ...any) error {
	f := fault.New(fault.Precondition, fault.ReasonInvalid, format, args...)
	f.Message += ": " + cause.Error()
	return f.Because(cause)
}
