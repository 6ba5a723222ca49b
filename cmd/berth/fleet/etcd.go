package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// ErrNoEtcdLeader means that no reachable member of etcd is the leader.
var ErrNoEtcdLeader = errors.New("no member of etcd leads")

func (f *Fleet) startEtcd(ctx context.Context) (err error) {
	if f.config.Etcd == 0 {
		if f.config.TLS != "" {
			if err := f.security.initEtcd(); err != nil {
				return err
			}
		}
		alone := embedded.Alone()
		alone.Security = f.security.etcd
		if f.etcd, err = embedded.StartMember(ctx, f.config.Dir, alone); err != nil {
			return err
		}
		f.etcds = []string{f.etcd.Listener().Addr().String()}
		return nil
	}
	// The arguments of each member contain the addresses of all members, so all addresses
	// must be chosen before the first member starts.
	var peers, cluster, hosts []string
	for i := range f.config.Etcd {
		name := fmt.Sprintf("etcd-%d", i)
		listen, peer, err := f.memberAddresses(name)
		if err != nil {
			return err
		}
		reached, err := f.config.Via("peers", name, peer)
		if err != nil {
			return err
		}
		f.etcds, peers = append(f.etcds, listen), append(peers, peer)
		cluster = append(cluster, name+"="+reached)
		place, err := f.config.Place(name)
		if err != nil {
			return err
		}
		if place.Host != "" {
			hosts = append(hosts, place.Host)
		}
	}
	if f.config.TLS != "" {
		if err := f.security.initEtcd(hosts...); err != nil {
			return err
		}
	}
	for i, listen := range f.etcds {
		if err := f.member(fmt.Sprintf("etcd-%d", i), listen, peers[i], strings.Join(cluster, ",")); err != nil {
			return err
		}
	}
	f.initial = strings.ReplaceAll(strings.Join(cluster, ","), "=", "=http://")
	return f.StartMembers(ctx)
}

// member adds the process of a member of etcd to the fleet without starting the process.
func (f *Fleet) member(name, listen, peer, cluster string, more ...string) error {
	dir := filepath.Join(f.config.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args := []string{"etcd", "--name", name, "--dir", dir, "--listen", listen, "--peer-listen", peer, "--members", cluster}
	if s := f.security.etcd; s.Cert != "" {
		args = append(args, "--tls-cert", s.Cert, "--tls-key", s.Key, "--tls-ca", s.CA)
	}
	p, err := f.process(name, identity.Identity{}, f.flagged("etcd", append(args, more...)))
	if err == nil {
		f.members = append(f.members, p)
	}
	return err
}

// memberAddresses returns two addresses of a member: listen for clients and peer for the
// other members.
func (f *Fleet) memberAddresses(name string) (listen, peer string, err error) {
	if listen, err = f.address(name, 0); err == nil {
		peer, err = f.address(name, 1)
	}
	return listen, peer, err
}

// AddMember starts another member of etcd after join has added the member's peer URL to the
// cluster. The services keep the endpoints with which they were started.
func (f *Fleet) AddMember(ctx context.Context, join func(peerURL string) error) error {
	name := fmt.Sprintf("etcd-%d", len(f.members))
	listen, peer, err := f.memberAddresses(name)
	if err != nil {
		return err
	}
	if err := join("http://" + peer); err != nil {
		return err
	}
	cluster := strings.ReplaceAll(f.initial, "http://", "") + "," + name + "=" + peer
	if err := f.member(name, listen, peer, cluster, "--join"); err != nil {
		return err
	}
	f.etcds = append(f.etcds, listen)
	return f.Restart(ctx, f.members[len(f.members)-1])
}

// StartMembers starts all members of etcd concurrently, because no member is ready before a
// majority runs. It must be called while no member runs.
func (f *Fleet) StartMembers(ctx context.Context) error {
	return each(f.members, func(p *child.Process) error { return f.Restart(ctx, p) })
}

// InitialCluster returns the members of etcd as the value of etcd's --initial-cluster.
func (f *Fleet) InitialCluster() string { return f.initial }

// MemberData returns the data directory of the i-th member of etcd.
func (f *Fleet) MemberData(i int) string {
	return filepath.Join(f.config.Dir, f.members[i].Name, embedded.DataDir)
}

// Etcd returns etcd's endpoints, one for each member: host:port, or https://host:port with
// TLS. EtcdConfig has the certificate for them.
func (f *Fleet) Etcd() []string {
	var list []string
	for _, address := range f.etcds {
		list = append(list, f.security.scheme()+address)
	}
	return list
}

// Member returns the process of the i-th member of etcd. The member keeps its data when the
// process is restarted.
func (f *Fleet) Member(i int) *child.Process { return f.members[i] }

// EtcdLeader returns the index of etcd's leader, or -1 and ErrNoEtcdLeader if no reachable
// member is the leader.
func (f *Fleet) EtcdLeader(ctx context.Context) (int, error) {
	for i := range f.etcds {
		if id, leader, err := f.memberStatus(ctx, i); err == nil && id == leader {
			return i, nil
		}
	}
	return -1, ErrNoEtcdLeader
}

// MoveEtcdLeader makes a member of etcd the leader.
func (f *Fleet) MoveEtcdLeader(ctx context.Context, to int) error {
	from, err := f.EtcdLeader(ctx)
	if err != nil || from == to {
		return err
	}
	id, _, err := f.memberStatus(ctx, to)
	if err != nil {
		return err
	}
	s, err := f.dialEtcd(from)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Client().MoveLeader(ctx, id)
	return err
}

// memberStatus returns the ID of a member and the ID of the leader that it knows, or 0 if
// the member knows no leader.
func (f *Fleet) memberStatus(ctx context.Context, i int) (id, leader uint64, err error) {
	s, err := f.dialEtcd(i)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	status, err := s.Client().Status(ctx, f.Etcd()[i])
	if err != nil {
		return 0, 0, err
	}
	return status.Header.MemberId, status.Leader, nil
}

// dialEtcd connects to one member.
func (f *Fleet) dialEtcd(i int) (*store.Etcd, error) {
	config, err := f.EtcdConfig(f.Etcd()[i])
	if err != nil {
		return nil, err
	}
	return store.Dial(config)
}
