package store_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/porttest"
)

// Check says in one sentence why etcd cannot be used.
func TestCheck(t *testing.T) {
	cluster := etcdtest.Start(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dial := func(user, password string, endpoints ...string) *store.Etcd {
		t.Helper()
		s, err := store.Dial(store.DialConfig{Endpoints: endpoints, Username: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	check := func(s *store.Etcd, want string) {
		t.Helper()
		got := ""
		if err := s.Check(t.Context(), "berth/x/leaders/registry"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	etcd, unused := cluster.Endpoints()[0], porttest.Hold(t)

	good := dial("", "", etcd)
	if id := good.ClusterID(); id != "" {
		t.Errorf("before the first answer, the cluster is %q", id)
	}
	check(good, "")
	members, err := good.Client().MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := good.ClusterID(), strconv.FormatUint(members.Header.ClusterId, 16); got != want {
		t.Errorf("the cluster is %q, want %q", got, want)
	}
	check(dial("", "", unused), fmt.Sprintf("etcd does not answer: %s (connection refused)", unused))
	check(dial("", "", silent.Addr().String()),
		fmt.Sprintf("etcd does not answer: %s (no answer in time)", silent.Addr()))
	two := dial("", "", unused, silent.Addr().String())
	check(two, fmt.Sprintf("etcd does not answer: %s (connection refused), %s (no answer in time)", unused, silent.Addr()))

	// Users.
	admin := cluster.Store(t).Client()
	for _, err := range []error{
		third(admin.UserAdd(t.Context(), "root", "secret")), third(admin.UserGrantRole(t.Context(), "root", "root")),
		third(admin.UserAdd(t.Context(), "guest", "guest")), third(admin.RoleAdd(t.Context(), "other")),
		third(admin.RoleGrantPermission(t.Context(), "other", "other/", clientv3.GetPrefixRangeEnd("other/"),
			clientv3.PermissionType(clientv3.PermRead))),
		third(admin.UserGrantRole(t.Context(), "guest", "other")), third(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(dial("root", "secret", etcd), "")
	check(good, fmt.Sprintf("etcd at %s requires a login: set --etcd-user and --etcd-password-file", etcd))
	check(dial("root", "wrong", etcd), fmt.Sprintf(
		"etcd at %s refuses the login of the user %q: authentication failed, invalid user ID or password; "+
			"correct the password in --etcd-password-file, which is read again", etcd, "root"))
	empty, err := store.Dial(store.DialConfig{Endpoints: []string{etcd}, Username: "root", Password: "wrong",
		PasswordProblem: func() string { return "--etcd-password-file: /p is empty" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { empty.Close() })
	check(empty, fmt.Sprintf("etcd at %s refuses the login of the user %q: authentication failed, invalid user ID or password; "+
		"--etcd-password-file: /p is empty, so the last password that it had is used; the file is read again", etcd, "root"))
	check(dial("guest", "guest", etcd),
		fmt.Sprintf("etcd at %s does not permit the user %q to read berth/x/leaders/registry", etcd, "guest"))
}

// Check names the members that do not answer when etcd has lost its quorum.
func TestCheckWithoutQuorum(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 3)
	s := cluster.Store(t)
	if err := s.Check(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	cluster.Kill(0)
	cluster.Kill(1)
	err := s.Check(t.Context(), "k")
	if err == nil || !strings.HasPrefix(err.Error(), "etcd answers no read through its quorum: no answer from ") ||
		!strings.Contains(err.Error(), cluster.Endpoints()[0]+" (") ||
		!strings.Contains(err.Error(), cluster.Endpoints()[1]+" (") {
		t.Errorf("got %v", err)
	}
}
