package restore

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// TestRepeatedRestores checks that every restored history begins above all revisions that
// earlier histories can have written. The earlier histories come from the same snapshot,
// a newer snapshot or an older snapshot.
func TestRepeatedRestores(t *testing.T) {
	const perSecond = 100_000 // more than etcd writes on any disk
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	snapshots := []int64{1000}
	reached := int64(5000)
	for i, from := range []int{0, 0, 1, 0, 3, 2} {
		latest := snapshots[from]
		bump, err := Raise{}.bump(latest, 1, now)
		if err != nil {
			t.Fatal(err)
		}
		begin := latest + int64(bump)
		if begin <= reached {
			t.Errorf("restore %d begins at %d, but an earlier one reached %d", i, begin, reached)
		}
		if begin > maxRevision {
			t.Errorf("restore %d begins at %d, which is not exact in JSON", i, begin)
		}
		life := []time.Duration{time.Second, time.Minute, 100 * 24 * time.Hour}[i%3]
		reached = begin + perSecond*int64(life/time.Second)
		snapshots = append(snapshots, reached)
		now = now.Add(life)
	}
}

func TestRaise(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	begin := now.Sub(zero).Microseconds()
	for name, c := range map[string]struct {
		raise   Raise
		latest  int64
		members int
		want    int64 // where the history continues
		refused string
	}{
		"now":          {latest: 10, members: 1, want: begin},
		"moment":       {raise: Raise{At: now.Add(-time.Hour)}, latest: 10, members: 3, want: begin - 3600*1e6},
		"many members": {latest: 10, members: 3, refused: "--at 2026-03-01T12:00:00Z"},
		"an old moment": {raise: Raise{At: now.Add(-25 * time.Hour)}, latest: 10, members: 3,
			refused: "the moment of this restore"},
		"a future moment": {raise: Raise{At: now.Add(time.Hour)}, latest: 10, members: 3,
			refused: "the moment of this restore"},
		"clock set back": {latest: begin, members: 1, refused: "set back"},
		"by hand": {raise: Raise{By: store.MinRestoreBump}, latest: 10, members: 3,
			want: store.MinRestoreBump + 10},
		"by hand, too little":  {raise: Raise{By: store.MinRestoreBump - 1}, latest: 10, members: 1, refused: "at least"},
		"by hand, too much":    {raise: Raise{By: maxRevision}, latest: 10, members: 1, refused: "above"},
		"by hand and a moment": {raise: Raise{By: store.MinRestoreBump, At: now}, latest: 10, members: 1, refused: "--at"},
	} {
		t.Run(name, func(t *testing.T) {
			bump, err := c.raise.bump(c.latest, c.members, now)
			switch {
			case c.refused != "":
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%d, %v", bump, err)
				}
			case err != nil || c.latest+int64(bump) != c.want:
				t.Errorf("raised by %d, %v; want revision %d", bump, err, c.want)
			}
		})
	}
}

// TestClusterIDs checks that members with the same --at belong to one cluster, and a
// member with another --at to another cluster.
func TestClusterIDs(t *testing.T) {
	dir := t.TempDir()
	file := written(t, dir)
	const cluster = "a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3"
	at := time.Now().Truncate(time.Second)
	ids := map[string]uint64{}
	for name, at := range map[string]time.Time{"a": at, "b": at, "c": at.Add(-time.Second)} {
		data := filepath.Join(dir, name)
		made, err := Restore(t.Context(), file, Member{Name: name, Cluster: cluster, Token: "token", DataDir: data},
			Raise{At: at})
		if err != nil {
			t.Fatal(err)
		}
		if made.Revision != at.Sub(zero).Microseconds() || strings.Join(made.Clusters, " ") != "default" {
			t.Errorf("%s: %+v", name, made)
		}
		ids[name] = clusterID(t, data)
	}
	if ids["a"] != ids["b"] || ids["a"] == ids["c"] {
		t.Errorf("the clusters are %x", ids)
	}
	if _, err := Restore(t.Context(), file, Member{Name: "a", Cluster: cluster, DataDir: filepath.Join(dir, "d")},
		Raise{}); !fault.Is(err, fault.ReasonInvalid) {
		t.Errorf("without --at: %v", err)
	}
}

// written writes a snapshot in the format of etcd, a database and its checksum, and
// returns the file.
func written(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "snapshot")
	b := backend.NewDefaultBackend(zap.NewNop(), file)
	s := mvcc.NewStore(zap.NewNop(), b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	keys := keyspace.New("default")
	for _, ref := range []model.Ref{
		{Kind: model.KindLeader, ID: "registry"}, {Kind: model.KindReady}, {Kind: model.KindLive, ID: "host-0"},
		{Kind: model.KindExecutor, ID: "host-0"},
	} {
		s.Put([]byte(keys.Key(ref)), []byte("value"), lease.NoLease)
	}
	s.Commit()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if err := os.WriteFile(file, append(text, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRestoreDeletesVolatileRecords checks that a restored cluster has no leader, is not
// marked ready, and has no present executor. So an executor becomes READY only after its
// agent has reported its workers.
func TestRestoreDeletesVolatileRecords(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	member := Member{Name: "a", Cluster: "a=http://127.0.0.1:2380", DataDir: data}
	if _, err := Restore(t.Context(), written(t, dir), member, Raise{}); err != nil {
		t.Fatal(err)
	}
	b := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(data, "member", "snap", "db"))
	defer b.Close()
	s := mvcc.NewStore(zap.NewNop(), b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer s.Close()
	all, err := s.Range(t.Context(), []byte("/berth/"), []byte("/berth0"), mvcc.RangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := keyspace.New("default").Key(model.Ref{Kind: model.KindExecutor, ID: "host-0"})
	if len(all.KVs) != 1 || string(all.KVs[0].Key) != want {
		t.Errorf("restored keys: %v, want only %s", all.KVs, want)
	}
}

// clusterID returns the cluster ID in a data directory.
func clusterID(t *testing.T, data string) uint64 {
	t.Helper()
	log, err := wal.OpenForRead(zap.NewNop(), filepath.Join(data, "member", "wal"), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	text, _, _, err := log.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var metadata etcdserverpb.Metadata
	if err := proto.Unmarshal(text, &metadata); err != nil {
		t.Fatal(err)
	}
	return metadata.GetClusterID()
}
