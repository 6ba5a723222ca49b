package restore

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"berth.dev/pkg/fault"
)

// Bump is how far revisions are raised unless somebody says otherwise: more than
// a cluster writes between two backups, a thousand a second for eleven days.
const Bump = 1_000_000_000

// Member is the member of etcd to make, in etcd's own words.
type Member struct {
	Name string
	// Cluster lists all members, itself included, as name=URL,name=URL of where they
	// serve one another; Token tells the cluster from others.
	Cluster, Token string
	// DataDir is made; it has to be empty or not there.
	DataDir string
}

// Restore makes the data directory of a member from a snapshot, with revisions
// raised by bump, and answers the names of the Berth clusters in it. When it
// fails, no data directory is left that etcd would start from.
func Restore(ctx context.Context, file string, m Member, bump uint64) (clusters []string, err error) {
	urls := peers(m)
	if len(urls) == 0 {
		return nil, fault.BadField(fault.ReasonInvalid, "--initial-cluster", "has no member %q", m.Name)
	}
	if bump == 0 {
		return nil, fault.BadField(fault.ReasonInvalid, "--bump-revision", "has to be above 0: agents refuse the orders of a past")
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
	if clusters, err = edit(ctx, database); err != nil {
		return nil, err
	}
	made := filepath.Join(work, "member")
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: database, SkipHashCheck: true, // it was checked before it was edited
		Name: m.Name, OutputDataDir: made, PeerURLs: urls, InitialCluster: m.Cluster, InitialClusterToken: m.Token,
		RevisionBump: bump, MarkCompacted: true,
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
	return clusters, nil
}

// peers are the URLs of the member itself.
func peers(m Member) []string {
	var urls []string
	for pair := range strings.SplitSeq(m.Cluster, ",") {
		if name, url, found := strings.Cut(strings.TrimSpace(pair), "="); found && name == m.Name {
			urls = append(urls, url)
		}
	}
	return urls
}
