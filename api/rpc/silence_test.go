package rpc_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
)

// wire forwards connections to an address. The test can cut it, and then it forwards
// nothing.
type wire struct {
	addr string
	mu   sync.RWMutex // locked to cut the connections
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String()}
	var all sync.WaitGroup
	copyOne := func(to, from net.Conn) {
		defer to.Close()
		piece := make([]byte, 4096)
		for {
			n, err := from.Read(piece)
			w.mu.RLock()
			_, writeErr := to.Write(piece[:n])
			w.mu.RUnlock()
			if err != nil || writeErr != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", to)
			if err != nil {
				from.Close()
				continue
			}
			all.Go(func() { copyOne(to, from) })
			all.Go(func() { copyOne(from, to) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return w
}

// A silent replica gets no calls, and its calls in progress end, although its connections
// stay open. When the replica answers again, it gets calls again.
func TestSilentReplicaIsReplaced(t *testing.T) {
	const silence = 200 * time.Millisecond
	reached := make(chan struct{}, 100)
	hanging := &peer{get: func(ctx context.Context) (*berthv1.Replica, error) {
		reached <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	serve(t, "", rpc.ServerOptions{}, hanging)
	w := newWire(t, hanging.addr)
	replicas := dial(t, rpc.DialOptions{Silence: silence}, w.addr)
	ctx := within(t, time.Minute)
	answer := make(chan error, 1)
	// call returns once a replica answers. On a slow machine, the replica may seem silent and
	// end the call before that, so the call is repeated.
	call := func() {
		t.Helper()
		for {
			go func() {
				_, err := replicas.GetReplica(ctx, &controlv1.GetReplicaRequest{})
				answer <- err
			}()
			select {
			case <-reached:
				return
			case err := <-answer:
				if status.Code(err) != codes.Unavailable {
					t.Fatalf("the call did not reach a replica: %v", err)
				}
				for len(reached) > 0 {
					<-reached
				}
			}
		}
	}
	call()
	w.mu.Lock()
	if err := <-answer; status.Code(err) != codes.Unavailable {
		t.Errorf("a call to a silent replica ended with %v", err)
	}

	awake := serve(t, "", rpc.ServerOptions{}, named("awake"))
	both := dial(t, rpc.DialOptions{Silence: silence}, w.addr, awake.addr)
	for answered := 0; answered < 10; {
		r, err := both.GetReplica(ctx, &controlv1.GetReplicaRequest{})
		switch {
		case err == nil && r.GetId() == "awake":
			answered++
		case status.Code(err) != codes.Unavailable: // the replica itself may be slow
			t.Fatalf("%v, %v", r, err)
		}
	}
	w.mu.Unlock()

	call()
	hanging.server.Stop()
	<-answer
}
