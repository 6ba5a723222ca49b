package store_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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

// A client logs in with the password of the moment. While etcd refuses it, every call says so. Once
// the password is right again, calls and a watch continue without a new client.
func TestPasswordChanges(t *testing.T) {
	cluster := etcdtest.Start(t)
	admin := loginRequired(t, cluster)
	var password atomic.Pointer[string]
	set := func(text string) { password.Store(&text) }
	set("berth")
	s, err := store.Dial(store.DialConfig{Endpoints: cluster.Endpoints(), Username: "berth",
		CurrentPassword: func() string { return *password.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(value string) error {
		_, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("/berth/k", []byte(value))}})
		return err
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
	watch := s.Watch("/berth/", 1)
	defer watch.Close()
	next := func(want string) {
		t.Helper()
		for {
			b, err := watch.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(b.Changes); n > 0 && string(b.Changes[n-1].Value) == want {
				return
			}
		}
	}
	next("one")
	if _, err := admin.UserChangePassword(t.Context(), "berth", "other"); err != nil {
		t.Fatal(err)
	}
	if err := put("two"); !errors.Is(err, store.ErrLogin) || errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("with the old password: %v", err)
	}
	set("other")
	if err := put("three"); err != nil {
		t.Errorf("with the new password: %v", err)
	}
	next("three")
}

// loginRequired makes etcd require users: root, berth, which may use only the keys of Berth, and
// guest, which may use none.
// Their first passwords are their names. It returns a client of root.
func loginRequired(t *testing.T, cluster *etcdtest.Cluster) *clientv3.Client {
	t.Helper()
	admin := cluster.Store(t).Client()
	for _, err := range []error{
		third(admin.UserAdd(t.Context(), "root", "root")), third(admin.UserGrantRole(t.Context(), "root", "root")),
		third(admin.UserAdd(t.Context(), "berth", "berth")), third(admin.RoleAdd(t.Context(), "keys")),
		third(admin.RoleGrantPermission(t.Context(), "keys", "/berth/", clientv3.GetPrefixRangeEnd("/berth/"),
			clientv3.PermissionType(clientv3.PermReadWrite))),
		third(admin.UserGrantRole(t.Context(), "berth", "keys")), third(admin.UserAdd(t.Context(), "guest", "guest")),
		third(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := store.Dial(store.DialConfig{Endpoints: cluster.Endpoints(), Username: "root", Password: "root"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root.Client()
}

// Inspect reports whether etcd refuses the login. A user that may read only some keys sees the members
// and the quorum; it sees the compacted history if it may read the keys of Berth.
func TestInspectWithUsers(t *testing.T) {
	cluster := etcdtest.Start(t)
	at := cluster.Endpoints()[0]
	loginRequired(t, cluster)
	const wrong = "authentication failed, invalid user ID or password"
	for _, c := range []struct {
		user, password, refused string
		compacted               int64
	}{
		{"root", "root", "", 0}, {"berth", "berth", "", 0}, {"guest", "guest", "", store.NotKnown},
		{"berth", "wrong", "etcd at " + at + ` refuses the login of the user "berth": ` + wrong, 0},
		{"nobody", "berth", "etcd at " + at + ` refuses the login of the user "nobody": ` + wrong, 0},
		{"", "", "etcd at " + at + " requires a login: set --etcd-user and --etcd-password-file", 0},
	} {
		s, err := store.Dial(store.DialConfig{Endpoints: cluster.Endpoints(), Username: c.user, Password: c.password})
		if err != nil {
			t.Fatal(err)
		}
		h := s.Inspect(t.Context(), time.Minute)
		s.Close()
		answered := len(h.Members) == 1 && h.Members[0].Error == "" && h.ReadError == "" && h.Compacted == c.compacted
		accepted := c.refused == ""
		if !strings.HasPrefix(h.Refused, c.refused) || (h.Refused == "") != accepted || answered != accepted {
			t.Errorf("%s: %+v, want %q", c.user, h, c.refused)
		}
	}
}
