// Package liveness renews the etcd leases of executors.
//
// It promises that many renewals share few streams to etcd: a hundred thousand
// etcd leases cost a tenth that way of what a stream each would. They go to the
// member of etcd that leads, where it can be told: any other passes each on to it.
// Those asked for together are sent together, so that they share system calls too,
// here and in etcd. A renewal is answered only from etcd's own answer to it, and an
// etcd lease that has run out is an error: etcd itself answers a TTL of 0 and no
// error.
package liveness

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The bounds of the renewer.
const (
	streams = 2
	waiting = 64
	// together is how many renewals go over one stream at a time: the next ones go
	// over another meanwhile.
	together = 512
	// answerTimeout ends a stream that does not answer: another one may reach a
	// member of etcd that does.
	answerTimeout = 3 * time.Second
	reopenPause   = 100 * time.Millisecond
)

var (
	errStream  = errors.New("liveness: the stream to etcd broke")
	errWaiting = errors.New("liveness: not answered yet")
)

// Renewer renews etcd leases.
type Renewer struct {
	client   *clientv3.Client
	requests chan *renewal
}

// NewRenewer makes a renewer; Run runs it.
func NewRenewer(client *clientv3.Client) *Renewer {
	return &Renewer{client: client, requests: make(chan *renewal, waiting)}
}

// Renew renews etcd leases and waits for etcd's answers, until ctx ends. It
// answers what became of each: store.ErrLeaseNotFound says that it has run out.
func (r *Renewer) Renew(ctx context.Context, leases []int64) []error {
	var parts []*renewal
	for part := range slices.Chunk(leases, together) {
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

// Run keeps the streams until ctx ends.
func (r *Renewer) Run(ctx context.Context) error {
	var owned sync.WaitGroup
	for range streams {
		owned.Go(func() {
			for ctx.Err() == nil {
				r.stream(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(reopenPause):
				}
			}
		})
	}
	owned.Wait()
	return nil
}

// stream sends renewals over one stream until it breaks, or until another member of
// etcd leads than the one that it goes to.
func (r *Renewer) stream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	endpoint := leadingMember(ctx, r.client)
	conn, done := dial(r.client, endpoint)
	defer done()
	// A member of etcd that knows no leader, or loses it, ends the stream: the next
	// one is to another.
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
	// Beside the sending, which itself waits when etcd takes nothing any more.
	var watchdog sync.WaitGroup
	elsewhere := make(chan struct{})
	watchdog.Go(func() { look(ctx, r.client, endpoint, lookEvery, elsewhere) })
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
	for moved := false; ctx.Err() == nil && !moved; {
		select {
		case <-ctx.Done():
		case <-elsewhere:
			moved = true
			_ = s.CloseSend() // etcd answers what it was sent, and ends the stream
			defer time.AfterFunc(answerTimeout, cancel).Stop()
		case q := <-r.requests:
			if q.ctx.Err() != nil {
				continue // nobody waits for it any more
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
