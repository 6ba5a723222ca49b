package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
)

// verified copies a snapshot without the checksum at its end. It returns an error if the
// checksum does not match.
func verified(file, to string) error {
	from, err := os.Open(file)
	if err != nil {
		return cannot(err, "read", "the snapshot")
	}
	defer from.Close() //nolint:errcheck // the file is only read
	info, err := from.Stat()
	if err != nil {
		return cannot(err, "read", "the snapshot")
	}
	database := info.Size() - sha256.Size
	// The size of a database is a multiple of the page size, which is a multiple of 512.
	if database <= 0 || database%512 != 0 {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s is not a snapshot of etcd: it has no checksum at its end",
			file)
	}
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cannot(err, "copy", "the snapshot")
	}
	defer copied.Close() //nolint:errcheck // only for returns with another error: see below
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(copied, sum), from, database); err != nil {
		return cannot(err, "copy", "the snapshot")
	}
	want, err := io.ReadAll(from)
	if err != nil {
		return cannot(err, "read", "the snapshot")
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s is damaged: its checksum does not match", file)
	}
	if err := copied.Close(); err != nil {
		return cannot(err, "copy", "the snapshot")
	}
	return nil
}

// edit deletes the records that are wrong after a restore, and returns the names of the
// clusters in the database. It deletes the leaders, the mark that the registry is ready,
// and the presence of executors. So an executor becomes READY only after its agent has
// reported its workers since the restore. edit deletes through etcd's own storage and in
// the order of the keys, so that equal databases stay equal.
func edit(ctx context.Context, database string) (clusters []string, err error) {
	// backend.NewDefaultBackend panics if the file is not a database.
	defer func() {
		if broken := recover(); broken != nil {
			err = fault.New(fault.Invalid, fault.ReasonInvalid, "the snapshot has no database of etcd: %v", broken)
		}
	}()
	log := zap.NewNop()
	b := backend.NewDefaultBackend(log, database)
	defer b.Close()
	s := mvcc.NewStore(log, b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer s.Close()
	const prefix, end = "/berth/", "/berth0"
	all, err := s.Range(ctx, []byte(prefix), []byte(end), mvcc.RangeOptions{})
	if err != nil {
		return nil, err
	}
	for _, kv := range all.KVs {
		cluster, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), prefix), "/")
		if !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
		ref, _ := keyspace.New(cluster).Parse(string(kv.Key))
		switch ref.Kind {
		case model.KindLeader, model.KindReady, model.KindLive:
			s.DeleteRange(kv.Key, nil)
		}
	}
	s.Commit()
	return clusters, nil
}
