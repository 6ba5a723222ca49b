package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// ErrNoEtcdLeader says that no member of etcd that answers knows who leads.
var ErrNoEtcdLeader = errors.New("no member of etcd leads")

func (f *Fleet) startEtcd(ctx context.Context) (err error) {
	if f.config.Etcd == 0 {
		if f.etcd, err = embedded.Start(ctx, f.config.Dir); err != nil {
			return err
		}
		f.etcds = []string{f.etcd.Endpoint()}
		return nil
	}
	// Members name one another's addresses before any of them runs.
	var peers, cluster []string
	for i := range f.config.Etcd {
		name := fmt.Sprintf("etcd-%d", i)
		listen, err := f.address(name, 0)
		if err != nil {
			return err
		}
		peer, err := f.address(name, 1)
		if err != nil {
			return err
		}
		reached, err := f.config.Via("peers", name, peer)
		if err != nil {
			return err
		}
		f.etcds, peers = append(f.etcds, listen), append(peers, peer)
		cluster = append(cluster, name+"="+reached)
	}
	for i, listen := range f.etcds {
		if err := f.member(fmt.Sprintf("etcd-%d", i), listen, peers[i], strings.Join(cluster, ",")); err != nil {
			return err
		}
	}
	f.initial = strings.ReplaceAll(strings.Join(cluster, ","), "=", "=http://")
	return f.StartMembers(ctx)
}

// member describes a member of etcd, of which the next is the last one.
func (f *Fleet) member(name, listen, peer, cluster string, more ...string) error {
	dir := filepath.Join(f.config.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args := []string{"etcd", "--name", name, "--dir", dir, "--listen", listen, "--peer-listen", peer, "--members", cluster}
	p, err := f.process(name, f.flagged("etcd", append(args, more...)))
	if err == nil {
		f.members = append(f.members, p)
	}
	return err
}

// AddMember tells etcd of one more member and starts it. The services do not know
// of it: they go on with those that they were given.
func (f *Fleet) AddMember(ctx context.Context) error {
	name := fmt.Sprintf("etcd-%d", len(f.members))
	listen, err := f.address(name, 0)
	if err != nil {
		return err
	}
	peer, err := f.address(name, 1)
	if err != nil {
		return err
	}
	if err := f.changeMembers(ctx, func(s *store.Etcd) error {
		_, err := s.Client().MemberAdd(ctx, []string{"http://" + peer})
		return err
	}); err != nil {
		return err
	}
	cluster := strings.ReplaceAll(f.initial, "http://", "") + "," + name + "=" + peer
	if err := f.member(name, listen, peer, cluster, "--join"); err != nil {
		return err
	}
	f.etcds = append(f.etcds, listen)
	return f.members[len(f.members)-1].Start(ctx)
}

// RemoveMember tells etcd that the i-th member is none any more, and kills it.
func (f *Fleet) RemoveMember(ctx context.Context, i int) error {
	id, _, err := f.memberStatus(ctx, i)
	if err != nil {
		return err
	}
	if err := f.changeMembers(ctx, func(s *store.Etcd) error {
		_, err := s.Client().MemberRemove(ctx, id)
		return err
	}); err != nil {
		return err
	}
	f.members[i].Kill()
	return nil
}

// changeMembers repeats a change of the members until etcd takes it: it refuses one
// while its members have not been connected for five seconds.
func (f *Fleet) changeMembers(ctx context.Context, change func(*store.Etcd) error) error {
	s, err := store.Dial(store.DialConfig{Endpoints: f.etcds})
	if err != nil {
		return err
	}
	defer s.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := change(s)
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrUnhealthy) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// StartMembers starts all members of etcd, none of which runs: together, for none
// is ready before most of them are.
func (f *Fleet) StartMembers(ctx context.Context) (err error) {
	started := make(chan error, len(f.members))
	for _, p := range f.members {
		go func() { started <- p.Start(ctx) }()
	}
	for range f.members {
		err = errors.Join(err, <-started)
	}
	return err
}

// InitialCluster lists the members of etcd, name=URL, as etcd is told of them.
func (f *Fleet) InitialCluster() string { return f.initial }

// MemberData is where the i-th member of etcd keeps its data.
func (f *Fleet) MemberData(i int) string {
	return filepath.Join(f.config.Dir, f.members[i].Name, embedded.DataDir)
}

// Etcd lists etcd's endpoints, one a member.
func (f *Fleet) Etcd() []string { return f.etcds }

// Member is the process of the i-th member of etcd. A restarted one has the data
// that it had.
func (f *Fleet) Member(i int) *child.Process { return f.members[i] }

// EtcdLeader finds which member of etcd leads, by its index. The error is
// ErrNoEtcdLeader while none is known.
func (f *Fleet) EtcdLeader(ctx context.Context) (int, error) {
	for i := range f.etcds {
		switch id, leader, err := f.memberStatus(ctx, i); {
		case err != nil || leader == 0:
			continue
		case id == leader:
			return i, nil
		}
	}
	return 0, ErrNoEtcdLeader
}

// MoveEtcdLeader has a member of etcd lead, if it does not yet.
func (f *Fleet) MoveEtcdLeader(ctx context.Context, to int) error {
	from, err := f.EtcdLeader(ctx)
	if err != nil || from == to {
		return err
	}
	id, _, err := f.memberStatus(ctx, to)
	if err != nil {
		return err
	}
	s, err := store.Dial(store.DialConfig{Endpoints: []string{f.etcds[from]}})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Client().MoveLeader(ctx, id)
	return err
}

// memberStatus answers the ids of a member and of who leads it; 0 for nobody.
func (f *Fleet) memberStatus(ctx context.Context, i int) (id, leader uint64, err error) {
	s, err := store.Dial(store.DialConfig{Endpoints: []string{f.etcds[i]}})
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	status, err := s.Client().Status(ctx, f.etcds[i])
	if err != nil {
		return 0, 0, err
	}
	return status.Header.MemberId, status.Leader, nil
}
