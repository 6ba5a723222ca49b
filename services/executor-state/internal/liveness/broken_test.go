package liveness

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// member is an etcd member. The test defines how it handles the first streams, and it
// answers on all later ones.
type member struct {
	pb.UnimplementedLeaseServer
	streams atomic.Int64
	first   func(pb.Lease_LeaseKeepAliveServer) error
}

func (m *member) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	if m.streams.Add(1) <= streams {
		return m.first(s)
	}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&pb.LeaseKeepAliveResponse{ID: req.ID, TTL: 10}); err != nil {
			return err
		}
	}
}

// startWith starts a renewer that uses a member with the given first streams.
func startWith(t *testing.T, first func(pb.Lease_LeaseKeepAliveServer) error) *Renewer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterLeaseServer(server, &member{first: first})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // returns after Stop
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRenewer(client)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		client.Close()
		server.Stop()
		serving.Wait()
	})
	return r
}

// renewAll renews n etcd leases at once and returns the number of failures.
func renewAll(t *testing.T, r *Renewer, n int) (failed int) {
	leases := make([]int64, n)
	for i := range leases {
		leases[i] = 1<<60 + int64(i)
	}
	for _, err := range r.Renew(within(t), leases) {
		if err != nil {
			failed++
			if !errors.Is(err, errStream) {
				t.Errorf("failed with %v", err)
			}
		}
	}
	return failed
}

// If a stream breaks, its pending renewals fail. The next stream works.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	r := startWith(t, func(s pb.Lease_LeaseKeepAliveServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "etcdserver: no leader")
	})
	for renewAll(t, r, 20) > 0 { // until within's deadline
	}
}

// If a stream gets no answers, it ends, even if Send blocks. The next stream works.
func TestFrozenStream(t *testing.T) {
	t.Parallel()
	r := startWith(t, func(s pb.Lease_LeaseKeepAliveServer) error {
		<-s.Context().Done()
		return s.Context().Err()
	})
	const more = 30_000 // more than fits into the flow-control windows of the first streams
	if failed := renewAll(t, r, more); failed == 0 {
		t.Error("nothing failed")
	}
	if failed := renewAll(t, r, 20); failed > 0 {
		t.Errorf("%d failed on a stream that answers", failed)
	}
}
