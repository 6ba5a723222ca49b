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

// Member describes the member of etcd to create. The fields correspond to flags of etcd.
type Member struct {
	Name string
	// Cluster lists all members including this member, as name=URL,name=URL with their peer
	// URLs. Token distinguishes the cluster from other clusters.
	Cluster, Token string
	// DataDir is the directory to create. It must be empty or not exist.
	DataDir string
}

// Restored describes a new data directory.
type Restored struct {
	// Clusters has the names of the Berth clusters in the data.
	Clusters []string
	// Revision is the revision at which the history continues.
	Revision int64
}

// Restore creates the data directory of a member from a snapshot, with raised revisions.
// If Restore fails, it leaves no data directory from which etcd would start.
func Restore(ctx context.Context, file string, m Member, raise Raise) (*Restored, error) {
	urls, members := peers(m)
	if len(urls) == 0 {
		return nil, fault.BadField(fault.ReasonInvalid, "--initial-cluster", "has no member %q", m.Name)
	}
	if entries, err := os.ReadDir(m.DataDir); err == nil && len(entries) > 0 {
		return nil, fault.New(fault.Precondition, fault.ReasonInvalid, "%s is not empty: move it away first", m.DataDir)
	}
	// Work in the parent directory. It is on the file system of the data directory, which
	// must have the space. The rename at the end works only within one file system.
	if err := os.MkdirAll(filepath.Dir(m.DataDir), 0o700); err != nil {
		return nil, cannot(err, "create", m.DataDir)
	}
	work, err := os.MkdirTemp(filepath.Dir(m.DataDir), ".restore-*")
	if err != nil {
		return nil, cannot(err, "create", m.DataDir)
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
		return nil, cannot(err, "read", "the snapshot")
	}
	bump, err := raise.bump(status.Revision, members, time.Now())
	if err != nil {
		return nil, err
	}
	revision := status.Revision + int64(bump)
	made := filepath.Join(work, "member")
	err = etcd.Restore(snapshot.RestoreConfig{
		SnapshotPath: database, SkipHashCheck: true, // verified checked the hash before edit changed the data
		Name: m.Name, OutputDataDir: made, PeerURLs: urls, InitialCluster: m.Cluster,
		// Members that continue at different revisions belong to different clusters, so that
		// etcd rejects their connections instead of serving different data.
		InitialClusterToken: fmt.Sprintf("%s-%d", m.Token, revision),
		RevisionBump:        bump, MarkCompacted: true,
	})
	if err != nil {
		return nil, cannot(err, "restore", "with etcd")
	}
	if err := os.Remove(m.DataDir); err != nil && !os.IsNotExist(err) {
		return nil, cannot(err, "replace", m.DataDir)
	}
	if err := os.Rename(made, m.DataDir); err != nil {
		return nil, cannot(err, "create", m.DataDir)
	}
	return &Restored{clusters, revision}, nil
}

// peers returns the peer URLs of the member, and the number of members.
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
