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
)

// A leader that stops in an orderly way gives up its leadership before it closes its port.
// Otherwise the closed port would look like a dead leader to a liveness probe. In this
// test, the leader cannot give up its leadership while etcd is frozen.
func TestPortClosesAfterLeadership(t *testing.T) {
	w := start(t, fleet.Config{Etcd: 1})
	leader, _ := w.leader(model.ServiceRegistry)
	address := leader.Addresses().Listen
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	leads := func() (status string, err error) {
		answer, err := healthpb.NewHealthClient(conn).Check(w.ctx,
			&healthpb.HealthCheckRequest{Service: rpc.LeaderHealth(model.ServiceRegistry)})
		return answer.GetStatus().String(), err
	}
	until(t, func() string {
		if status, err := leads(); err != nil || status != "SERVING" {
			return fmt.Sprintf("leader = %s, %v", status, err)
		}
		return ""
	})
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
