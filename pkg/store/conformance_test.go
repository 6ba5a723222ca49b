package store_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/storetest"
)

func TestFake(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		f := store.NewFake(store.FakeConfig{})
		return storetest.Subject{Store: f, Compact: func(_ *testing.T, revision int64) { f.Compact(revision) }}
	})
}

func TestEtcd(t *testing.T) { runEtcd(t, etcdtest.Start(t)) }

func TestEtcdOfThree(t *testing.T) { runEtcd(t, etcdtest.StartCluster(t, 3)) }

// runEtcd runs the suite on one cluster. The cluster is emptied before each test.
func runEtcd(t *testing.T, cluster *etcdtest.Cluster) {
	var members []*store.Etcd
	for _, endpoint := range cluster.Endpoints() {
		s, err := store.Dial(store.DialConfig{Endpoints: []string{endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		members = append(members, s)
	}
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s := cluster.Store(t)
		if _, err := s.Client().Delete(t.Context(), "", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		return storetest.Subject{Store: s, Compact: func(t *testing.T, revision int64) {
			if _, err := s.Client().Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			for _, member := range members { // the read waits until the member has the deletion
				if _, err := member.Client().Get(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
		}}
	})
}
