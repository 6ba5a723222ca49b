package restore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"berth.dev/api/fault"
)

// Member is the member of etcd to make, in etcd's own words.
type Member struct {
	Name string
	// Cluster lists all members, itself included, as name=URL,name=URL of where they
	// serve one another; Token tells the cluster from others.
	Cluster, Token string
	// DataDir is made; it has to be empty or not there.
	DataDir string
}

// Restored is what a data directory was made with.
type Restored struct {
	// Clusters are the names of the Berth clusters in it.
	Clusters []string
	// Revision is where its history goes on.
	Revision int64
}

// Restore makes the data directory of a member from a snapshot, with revisions
// raised. When it fails, no data directory is left that etcd would start from.
func Restore(ctx context.Context, file string, m Member, raise Raise) (*Restored, error) {
	urls, members := peers(m)
	if len(urls) == 0 {
		return nil, fault.BadField(fault.ReasonInvalid, "--initial-cluster", "has no member %q", m.Name)
	}
	if entries, err := os.ReadDir(m.DataDir); err == nil && len(entries) > 0 {
		return nil, fault.New(fault.Precondition, fault.ReasonInvalid, "%s is not empty: move it away first", m.DataDir)
	}
	// Beside the directory, where there is room for what comes into it.
	if err := os.MkdirAll(filepath.Dir(m.DataDir), 0o700); err != nil {
		return nil, cannot(err, "%s cannot be made", m.DataDir)
	}
	work, err := os.MkdirTemp(filepath.Dir(m.DataDir), ".restore-*")
	if err != nil {
		return nil, cannot(err, "%s cannot be made", m.DataDir)
	}
	defer os.RemoveAll(work)
	database := filepath.Join(work, "snapshot.db")
	if err := verified(file, database); err != nil {
		return nil, err
	}
	clusters, err := edit(ctx, database)
	if err != nil {
		return nil, err
	}
	etcd := snapshot.NewV3(zap.NewNop())
	status, err := etcd.Status(database)
	if err != nil {
		return nil, cannot(err, "the snapshot cannot be read")
	}
	bump, err := raise.bump(status.Revision, members, time.Now())
	if err != nil {
		return nil, err
	}
	revision := status.Revision + int64(bump)
	made := filepath.Join(work, "member")
	err = etcd.Restore(snapshot.RestoreConfig{
		SnapshotPath: database, SkipHashCheck: true, // it was checked before it was edited
		Name: m.Name, OutputDataDir: made, PeerURLs: urls, InitialCluster: m.Cluster,
		// Members that go on at different revisions are of different clusters to etcd:
		// they refuse one another in place of holding different things.
		InitialClusterToken: fmt.Sprintf("%s-%d", m.Token, revision),
		RevisionBump:        bump, MarkCompacted: true,
	})
	if err != nil {
		return nil, cannot(err, "etcd's restore fails")
	}
	if err := os.Remove(m.DataDir); err != nil && !os.IsNotExist(err) {
		return nil, cannot(err, "%s cannot be replaced", m.DataDir)
	}
	if err := os.Rename(made, m.DataDir); err != nil {
		return nil, cannot(err, "%s cannot be made", m.DataDir)
	}
	return &Restored{clusters, revision}, nil
}

// peers are the URLs of the member itself, and how many members there are.
func peers(m Member) (urls []string, members int) {
	names := map[string]bool{}
	for pair := range strings.SplitSeq(m.Cluster, ",") {
		if name, url, found := strings.Cut(strings.TrimSpace(pair), "="); found {
			if names[name] = true; name == m.Name {
				urls = append(urls, url)
			}
		}
	}
	return urls, len(names)
}
