package scenario

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
)

// A leader that stops in an orderly way gives up its leadership before it closes its port.
// Otherwise the closed port would look like a dead leader to a liveness probe. In this
// test, the leader cannot give up its leadership while etcd is frozen.
func TestPortClosesAfterLeadership(t *testing.T) {
	w := start(t, fleet.Config{Etcd: 1})
	leader, _ := w.leader(model.ServiceRegistry)
	address := leader.Addresses().Listen
	leads := health(w, leader, rpc.LeaderHealth(model.ServiceRegistry))
	until(t, func() string {
		if status, err := leads(); err != nil || status != "SERVING" {
			return fmt.Sprintf("leader = %s, %v", status, err)
		}
		return ""
	})
	// Only the leader serves the calls of the registry. Every replica serves its own health.
	for _, p := range w.fleet.Processes()[model.ServiceRegistry] {
		want := "NOT_SERVING"
		if p == leader {
			want = "SERVING"
		}
		for name, want := range map[string]string{"berth.v1.Reservations": want, "berth.control.v1.Queue": want,
			"berth.control.v1.Replicas": "SERVING", model.ServiceRegistry: "SERVING", "": "SERVING"} {
			if status, err := health(w, p, name)(); err != nil || status != want {
				t.Errorf("%s of %s is %s, %v, want %s", name, p.Name, status, err, want)
			}
		}
	}
	w.signal(w.fleet.Member(0), syscall.SIGSTOP)
	w.signal(leader, syscall.SIGTERM)
	told := time.Now()
	// The leader tries for two seconds to give up its leadership. Then it closes its port even
	// without success.
	refuses := func() bool {
		other, err := net.Dial("tcp", address)
		if err == nil {
			other.Close()
			return false
		}
		if took := time.Since(told); took < time.Second {
			t.Errorf("the replica still leads, but its port refuses connections: %v", err)
		} else {
			t.Logf("not observed: the check took %v on this machine", took)
		}
		return true
	}
	refused := false
	until(t, func() string {
		status, err := leads()
		refused = err != nil && refuses()
		if status != "NOT_SERVING" && !refused {
			return fmt.Sprintf("after SIGTERM its state is %s, %v", status, err)
		}
		return ""
	})
	if !refused {
		refuses()
	}
	w.signal(w.fleet.Member(0), syscall.SIGCONT)
	<-leader.Ended()
	w.restart(leader)
}

// health returns a function that checks one health name of a process.
func health(w *world, p *child.Process, name string) func() (status string, err error) {
	w.Helper()
	conn, err := grpc.NewClient(p.Addresses().Listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	return func() (string, error) {
		answer, err := healthpb.NewHealthClient(conn).Check(w.ctx, &healthpb.HealthCheckRequest{Service: name})
		return answer.GetStatus().String(), err
	}
}
