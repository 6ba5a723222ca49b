// Package embedded runs an etcd server inside this process, for one machine:
// `berth dev`, `berth demo` and `berth replay`.
//
// It promises the settings that etcd leaves off and a server needs: history is
// compacted, the quota is set, only loopback is listened on, and its log goes
// to a file in its data directory.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"berth.dev/api/fault"
)

const (
	startTimeout = 30 * time.Second
	// historyKept is how long revisions stay readable before they are compacted:
	// longer than job events are kept, since a stream is resumed by its revision.
	historyKept = "2h"
	quotaBytes  = 8 << 30
	// DataDir is what etcd makes of the directory that it is given to keep data in;
	// its log goes beside.
	DataDir = "etcd"
)

// Etcd is a running server.
type Etcd struct {
	server *embed.Etcd
}

// Member is one of several servers that hold the same data.
type Member struct {
	Name string
	// Listen and PeerListen are where it serves clients and the other members,
	// host:port.
	Listen, PeerListen string
	// Members are all of them, itself included, as name=host:port of where they
	// reach one another.
	Members []string
	// Joins says that the others run already, and have been told of it.
	Joins bool
	// Quota of the database, bytes; 8 GiB unless given.
	Quota int64
	// History is how long revisions are kept, such as 1m; two hours by default.
	History string
	// RaftEntries is how many entries of its log it keeps in memory, about; etcd's
	// default when 0. Members that fall further behind are sent a snapshot.
	RaftEntries uint64
}

// Alone is a member without others, at any port.
func Alone() Member {
	alone := "127.0.0.1:0"
	return Member{Name: "berth", Listen: alone, PeerListen: alone, Members: []string{"berth=" + alone}}
}

// Start starts a server that keeps its data in dir and is alone, at any port.
func Start(ctx context.Context, dir string) (*Etcd, error) { return StartMember(ctx, dir, Alone()) }

// StartMember starts one of several servers; it keeps its data in dir. It waits
// for the others: until most of them run, none is ready.
func StartMember(ctx context.Context, dir string, m Member) (*Etcd, error) {
	clients, reached := []url.URL{{Scheme: "http", Host: m.Listen}}, m.PeerListen
	for _, member := range m.Members {
		if name, address, _ := strings.Cut(member, "="); name == m.Name {
			reached = address
		}
	}
	config := embed.NewConfig()
	config.Name = m.Name
	config.Dir = filepath.Join(dir, DataDir)
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.PeerListen}}
	config.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: reached}}
	config.ListenClientUrls, config.AdvertiseClientUrls = clients, clients
	config.InitialCluster = strings.ReplaceAll(strings.Join(m.Members, ","), "=", "=http://")
	config.AutoCompactionMode, config.AutoCompactionRetention = embed.CompactorModePeriodic, cmp.Or(m.History, historyKept)
	if m.RaftEntries > 0 {
		config.SnapshotCount, config.SnapshotCatchUpEntries = m.RaftEntries, m.RaftEntries/10
	}
	config.QuotaBackendBytes = cmp.Or(m.Quota, quotaBytes)
	if m.Joins {
		config.ClusterState = embed.ClusterStateFlagExisting
	}
	config.LogLevel = "warn"
	config.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	var server *embed.Etcd
	err := verify(config.Dir)
	if err != nil {
		action := "restore a backup of its data or delete the directory"
		if errors.Is(err, errInUse) {
			action = "stop the process that uses it"
		}
		return nil, fault.New(fault.Precondition, fault.ReasonUnavailable, "embedded etcd cannot start in %s: %v: %s", config.Dir, err, action)
	}
	if err = guarded(func() (err error) { server, err = embed.StartEtcd(config); return err }); err != nil {
		return nil, fault.New(fault.Precondition, fault.ReasonUnavailable, "embedded etcd cannot start in %s", config.Dir).Because(err)
	}
	e := &Etcd{server}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-server.Server.ReadyNotify():
		return e, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = fmt.Errorf("not ready after %v", startTimeout)
	}
	e.Close()
	return nil, fault.New(fault.Precondition, fault.ReasonUnavailable, "embedded etcd in %s failed", config.Dir).Because(err)
}

// Endpoint is where it serves clients, host:port.
func (e *Etcd) Endpoint() string { return e.Listener().Addr().String() }

// Listener is the one that it serves clients on.
func (e *Etcd) Listener() net.Listener { return e.server.Clients[0] }

// Close stops the server.
func (e *Etcd) Close() { e.server.Close() }
