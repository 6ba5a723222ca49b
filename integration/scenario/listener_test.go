package scenario

import (
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpc"
)

// A leader that stops in order gives its leadership up before it closes its port: a
// port that refuses is half of a proof of death, and nobody shall prove a process dead
// that is still giving up. Here it cannot, for as long as etcd is frozen.
func TestAPortOutlivesALeadership(t *testing.T) {
	w := start(t, fleet.Config{Etcd: 1})
	leader, _, err := w.fleet.Leader(w.ctx, model.ServiceRegistry)
	if err != nil {
		t.Fatal(err)
	}
	address := leader.Addresses().Listen
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	leads := func() string {
		answer, err := healthpb.NewHealthClient(conn).Check(w.ctx, &healthpb.HealthCheckRequest{Service: rpc.LeaderHealth(model.ServiceRegistry)})
		if err != nil {
			return err.Error()
		}
		return answer.GetStatus().String()
	}
	if status := leads(); status != "SERVING" {
		t.Fatalf("the leader is %s", status)
	}
	w.signal(w.fleet.Member(0), syscall.SIGSTOP)
	w.signal(leader, syscall.SIGTERM)
	told := time.Now()
	until(t, func() string {
		if status := leads(); status != "NOT_SERVING" {
			return "it is told to stop, and is " + status
		}
		return ""
	})
	// It tries for two seconds to give up, and closes its port then all the same.
	if other, err := net.Dial("tcp", address); err == nil {
		other.Close()
	} else if took := time.Since(told); took < time.Second {
		t.Errorf("its leadership is not given up yet, and its port refuses: %v", err)
	} else {
		t.Logf("not seen: this machine took %v to look", took)
	}
	w.signal(w.fleet.Member(0), syscall.SIGCONT)
	<-leader.Ended()
	w.restart(leader)
}
