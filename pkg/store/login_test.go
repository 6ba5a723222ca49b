package store_test

import (
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
)

// A client with a user and a password logs in with its first call, so it does not need etcd
// when it is created. It works whether or not etcd requires users.
func TestLogin(t *testing.T) {
	cluster := etcdtest.Start(t)
	dial := func(password string, endpoints ...string) *store.Etcd {
		t.Helper()
		s, err := store.Dial(store.DialConfig{Endpoints: endpoints, Username: "root", Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	began := time.Now()
	dial("secret", "127.0.0.1:1")
	if took := time.Since(began); took > store.DefaultTimeout/2 {
		t.Errorf("without etcd, Dial took %v", took)
	}
	use := func(s *store.Etcd) error {
		lease, err := s.Grant(t.Context(), time.Hour)
		if err != nil {
			return err
		}
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("k", []byte("v"))}}); err != nil {
			return err
		}
		if _, err := s.KeepAlive(t.Context(), lease.ID); err != nil {
			return err
		}
		_, _, err = s.Get(t.Context(), "k")
		return err
	}
	before := dial("secret", cluster.Endpoints()...)
	if err := use(before); err != nil {
		t.Errorf("before etcd requires users: %v", err)
	}
	admin := cluster.Store(t).Client()
	for _, err := range []error{
		third(admin.UserAdd(t.Context(), "root", "secret")), third(admin.UserGrantRole(t.Context(), "root", "root")),
		third(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*store.Etcd{"a new client": dial("secret", cluster.Endpoints()...),
		"the client from before": before} {
		if err := use(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := use(dial("wrong", cluster.Endpoints()...)); err == nil ||
		!strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("a wrong password: %v", err)
	}
}

func third[T any](_ T, err error) error { return err }
