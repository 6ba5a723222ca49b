// Package liveness renews the etcd leases of executors, and returns for each renewal
// etcd's own answer to it. An expired etcd lease is an error, although etcd answers it
// with a TTL of 0 and no error.
//
// Many renewals share few streams to etcd. For a hundred thousand etcd leases this costs a
// tenth of what a stream for each lease would cost. The streams go to the etcd member that
// leads, if the renewer knows it, because any other member forwards each renewal. Renewals
// of one call are sent together, so that they share system calls here and in etcd.
package liveness

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"berth.dev/pkg/store"
)

// The limits of the renewer.
const (
	streams = 2
	queued  = 64
	// maxRenewal is how many etcd leases are renewed at a time over one stream. Further
	// leases use another stream meanwhile.
	maxRenewal = 512
	// answerTimeout ends a stream without answers, because another stream may reach an etcd
	// member that answers.
	answerTimeout = 3 * time.Second
	reopenPause   = 100 * time.Millisecond
)

var (
	errStream     = errors.New("liveness: the stream to etcd ended")
	errUnanswered = errors.New("liveness: no answer yet")
)

// Renewer renews etcd leases.
type Renewer struct {
	client   *clientv3.Client
	requests chan *renewal
}

// NewRenewer returns a renewer. Run runs it.
func NewRenewer(client *clientv3.Client) *Renewer {
	return &Renewer{client: client, requests: make(chan *renewal, queued)}
}

// Renew renews etcd leases and waits for etcd's answers, until ctx ends. It returns the
// result for each lease: store.ErrLeaseNotFound if the lease has expired.
func (r *Renewer) Renew(ctx context.Context, leases []int64) []error {
	var parts []*renewal
	for part := range slices.Chunk(leases, maxRenewal) {
		n := newRenewal(ctx, part)
		parts = append(parts, n)
		select {
		case r.requests <- n:
		case <-ctx.Done():
		}
	}
	outcome := make([]error, 0, len(leases))
	for _, n := range parts {
		select {
		case <-n.done:
		case <-ctx.Done():
		}
		outcome = append(outcome, n.outcome(ctx.Err())...)
	}
	return outcome
}

// Run opens the streams, and opens them again when they end, until ctx ends.
func (r *Renewer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range streams {
		running.Go(func() {
			for ctx.Err() == nil {
				r.stream(ctx)
				_ = store.Sleep(ctx, reopenPause)
			}
		})
	}
	running.Wait()
	return nil
}

// stream sends renewals over one stream until the stream ends, or until another etcd
// member leads.
func (r *Renewer) stream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	endpoint := leadingMember(ctx, r.client)
	conn, done := dial(r.client, endpoint)
	defer done()
	// An etcd member that knows no leader, or loses its leader, ends the stream. The next
	// stream goes to another member.
	s, err := pb.NewLeaseClient(conn).LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return
	}
	sent := &pending{byLease: map[int64][]place{}}
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer cancel()
		for {
			answer, err := s.Recv()
			if err != nil {
				return
			}
			sent.answer(answer.ID, answer.TTL)
		}
	}()
	// The watchdog is concurrent because Send blocks when etcd no longer receives.
	var watchdog sync.WaitGroup
	moved := make(chan struct{})
	watchdog.Go(func() { watchLeader(ctx, r.client, endpoint, leaderCheckInterval, moved) })
	watchdog.Go(func() {
		tick := time.NewTicker(answerTimeout / 4)
		defer tick.Stop()
		for !sent.overdue(answerTimeout) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	})
	for closing := false; ctx.Err() == nil && !closing; {
		select {
		case <-ctx.Done():
		case <-moved:
			closing = true
			_ = s.CloseSend() // etcd answers the renewals that it has received, and ends the stream
			defer time.AfterFunc(answerTimeout, cancel).Stop()
		case q := <-r.requests:
			if q.ctx.Err() != nil {
				continue // the caller no longer waits
			}
			sent.add(q)
			for _, lease := range q.leases {
				if err := s.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
					cancel()
					break
				}
			}
		}
	}
	<-received
	watchdog.Wait()
	sent.fail(errStream)
}
