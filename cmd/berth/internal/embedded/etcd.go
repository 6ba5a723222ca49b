// Package embedded runs an etcd server in this process that never acknowledges writes on
// top of truncated data: it checks the data directory before etcd starts. `berth dev`,
// `berth demo` and `berth replay` use it.
//
// The server has settings that are not etcd's defaults: it compacts its history, has a
// quota, listens on loopback by default, and logs to a file in its directory.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"berth.dev/api/fault"
	"berth.dev/pkg/process/port"
)

const (
	startTimeout = 30 * time.Second
	// historyKept is how long etcd keeps revisions before it compacts them. It must be
	// longer than the time for which job events are stored, because a stream of events
	// resumes at the revision of an event.
	historyKept = "2h"
	quotaBytes  = 8 << 30
	// DataDir is the subdirectory with etcd's data. The log is in the directory itself.
	DataDir = "etcd"
)

// Etcd is a running server.
type Etcd struct {
	server *embed.Etcd
	// http is the address of the port for HTTP; nil if the clients' port serves it too.
	http *port.Held
}

// Member is the configuration of a member of an etcd cluster.
type Member struct {
	Name string
	// Listen and PeerListen are the addresses for clients and for other members, host:port.
	Listen, PeerListen string
	// Members lists all members, including this member, as name=host:port. The address is
	// the one for other members.
	Members []string
	// Joins reports whether this member was added to a running cluster.
	Joins bool
	// Quota is the maximum size of the database in bytes; 8 GiB by default.
	Quota int64
	// History is how long revisions are kept, such as 1m; two hours by default.
	History string
	// RaftEntries is the approximate number of log entries that etcd keeps in memory; 0
	// means etcd's default. If another member is further behind, etcd sends that member a
	// snapshot.
	RaftEntries uint64
	// Security encrypts the connections of clients. The connections between members stay in
	// plain text.
	Security Security
}

// Security has the files that secure the connections of clients. Clients need a certificate
// of the authorities in CA. Without files the connections are in plain text.
type Security struct {
	Cert, Key, CA string
	// ClientCert and ClientKey are for Berth's own connections.
	ClientCert, ClientKey string
}

// Alone returns the configuration of a single member at free ports.
func Alone() Member {
	alone := "127.0.0.1:0"
	return Member{Name: "berth", Listen: alone, PeerListen: alone, Members: []string{"berth=" + alone}}
}

// Start starts a single member with its data in dir at a free port.
func Start(ctx context.Context, dir string) (*Etcd, error) { return StartMember(ctx, dir, Alone()) }

// StartMember starts a member with its data in dir. It returns when the member is ready,
// which needs a majority of the members to run.
func StartMember(ctx context.Context, dir string, m Member) (*Etcd, error) {
	scheme := "http"
	if m.Security.Cert != "" {
		scheme = "https"
	}
	clients, reached := []url.URL{{Scheme: scheme, Host: m.Listen}}, m.PeerListen
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
	e := &Etcd{}
	if m.Security.Cert != "" {
		// If a port with TLS serves HTTP too, etcd serves gRPC with the HTTP server of Go's
		// library, which needs much more processor time than the server of gRPC.
		var err error
		if e.http, err = port.Hold("127.0.0.1"); err != nil {
			return nil, err
		}
		config.ListenClientHttpUrls = []url.URL{{Scheme: scheme, Host: e.http.Address()}}
		config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = m.Security.Cert, m.Security.Key
		config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = m.Security.CA, true
	}
	config.LogLevel = "warn"
	config.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	if err := verify(config.Dir); err != nil {
		action := "restore a backup of its data or delete the directory"
		if errors.Is(err, errInUse) {
			action = "stop the process that uses it"
		}
		e.release()
		return nil, fault.New(fault.Precondition, fault.ReasonUnavailable, "embedded etcd cannot start in %s: %v: %s",
			config.Dir, err, action)
	}
	server, err := guarded(func() (*embed.Etcd, error) { return embed.StartEtcd(config) })
	if err != nil {
		e.release()
		return nil, fault.New(fault.Precondition, fault.ReasonUnavailable, "embedded etcd cannot start in %s",
			config.Dir).Because(err)
	}
	e.server = server
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
	return nil, fault.New(fault.Precondition, fault.ReasonUnavailable, "embedded etcd in %s failed",
		config.Dir).Because(err)
}

// Endpoint returns the address for clients, host:port, or https://host:port with TLS.
func (e *Etcd) Endpoint() string {
	if e.server.Config().ClientTLSInfo.CertFile != "" {
		return "https://" + e.Listener().Addr().String()
	}
	return e.Listener().Addr().String()
}

// Listener returns the listener for clients.
func (e *Etcd) Listener() net.Listener {
	i := slices.IndexFunc(e.server.Clients, func(l net.Listener) bool {
		return e.http == nil || l.Addr().String() != e.http.Address()
	})
	return e.server.Clients[i]
}

// Close stops the server.
func (e *Etcd) Close() {
	e.server.Close()
	e.release()
}

func (e *Etcd) release() {
	if e.http != nil {
		e.http.Release()
	}
}
