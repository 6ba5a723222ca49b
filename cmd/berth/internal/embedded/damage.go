package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

var errInUse = errors.New("another process uses the database")

// verify returns an error for damage to the data in dir that etcd does not report. If the
// database is truncated, etcd reads past its end and the kernel kills the process. If the
// log ends before the last entry that the database has applied, etcd acknowledges new
// writes without applying them. If the directory has no data, verify returns nil.
func verify(dir string) error {
	database, log := datadir.ToBackendFileName(dir), datadir.ToWALDir(dir)
	applied, err := guarded(func() (uint64, error) { return appliedIndex(database, wal.Exist(log)) })
	if err != nil {
		return fmt.Errorf("%s: %w", database, err)
	}
	logged, err := guarded(func() (uint64, error) { return loggedIndex(log) })
	if err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	if logged < applied {
		return fmt.Errorf("%s: the log is truncated: it ends at entry %d, and the database has applied entry %d", log,
			logged, applied)
	}
	return nil
}

// appliedIndex returns the index of the last entry that the database has applied.
func appliedIndex(file string, hasLog bool) (index uint64, err error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, nil // etcd rebuilds the database from the log, or returns an error
	case err != nil:
		return 0, err
	case info.Size() == 0 && !hasLog:
		return 0, nil // etcd was killed right after it had created the file
	case info.Size() == 0:
		return 0, errors.New("the database is truncated: it has 0 bytes")
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: startTimeout})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return 0, errInUse
	case err != nil:
		return 0, fmt.Errorf("the database cannot be opened: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		// tx.Size is from the meta page. Check it before bolt reads any other page.
		if tx.Size() > info.Size() {
			return fmt.Errorf("the database is truncated: it has %d bytes of %d", info.Size(), tx.Size())
		}
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if value := meta.Get([]byte("consistent_index")); len(value) == 8 {
				index = binary.BigEndian.Uint64(value)
			}
		}
		return nil
	})
	return index, err
}

// loggedIndex returns the index of the last entry in the log. If the log has no entries,
// it returns the index of the log's last snapshot.
func loggedIndex(dir string) (uint64, error) {
	if !wal.Exist(dir) {
		return 0, nil
	}
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		return 0, fmt.Errorf("the log cannot be read: %w", err)
	}
	from := &walpb.Snapshot{}
	if n := len(snapshots); n > 0 {
		from = snapshots[n-1]
	}
	log, err := wal.OpenForRead(zap.NewNop(), dir, from)
	if err != nil {
		return 0, fmt.Errorf("the log cannot be opened: %w", err)
	}
	_, _, entries, err := log.ReadAll()
	if err != nil {
		_ = log.Close() // fails if ReadAll has already closed the log
		return 0, fmt.Errorf("the log cannot be read: %w", err)
	}
	if n := len(entries); n > 0 {
		return entries[n-1].GetIndex(), nil
	}
	return from.GetIndex(), nil
}

// guarded returns the result of fn. If fn panics, guarded returns the panic as an error.
// This includes the fault of reading mapped memory beyond the end of the file.
func guarded[T any](fn func() (T, error)) (result T, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("panic: %v", what)
		}
	}()
	return fn()
}
