// Package liveness renews the etcd leases of executors.
//
// It promises that many renewals share few streams to etcd: a hundred thousand
// etcd leases cost a tenth that way of what a stream each would. A renewal is
// answered only from etcd's own answer to it, and an etcd lease that has run
// out is an error: etcd itself answers a TTL of 0 and no error.
package liveness

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"berth.dev/pkg/store"
)

// The bounds of the renewer.
const (
	streams = 2
	waiting = 4096
	// answerTimeout ends a stream that does not answer: another one may reach a
	// member of etcd that does.
	answerTimeout = 3 * time.Second
	reopenPause   = 100 * time.Millisecond
)

var errStream = errors.New("liveness: the stream to etcd broke")

// Renewer renews etcd leases.
type Renewer struct {
	client   *clientv3.Client
	requests chan renewal
}

type renewal struct {
	ctx   context.Context // of who waits
	lease int64
	done  chan error
}

// NewRenewer makes a renewer; Run runs it.
func NewRenewer(client *clientv3.Client) *Renewer {
	return &Renewer{client: client, requests: make(chan renewal, waiting)}
}

// Renew renews an etcd lease and waits for etcd's answer.
// store.ErrLeaseNotFound says that it has run out.
func (r *Renewer) Renew(ctx context.Context, lease int64) error {
	done := make(chan error, 1)
	select {
	case r.requests <- renewal{ctx, lease, done}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
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

// stream sends renewals over one stream until it breaks.
func (r *Renewer) stream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := pb.NewLeaseClient(r.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return
	}
	sent := &pending{byLease: map[int64][]chan error{}}
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
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case q := <-r.requests:
			if q.ctx.Err() != nil {
				continue // an executor whose stream has ended is not to be kept
			}
			sent.add(q)
			if err := s.Send(&pb.LeaseKeepAliveRequest{ID: q.lease}); err != nil {
				cancel()
			}
		}
	}
	<-received
	watchdog.Wait()
	sent.fail(errStream)
}

// pending are the renewals sent and not yet answered.
type pending struct {
	mu      sync.Mutex
	byLease map[int64][]chan error
	since   time.Time // of the last progress
}

func (p *pending) add(q renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byLease) == 0 {
		p.since = time.Now()
	}
	p.byLease[q.lease] = append(p.byLease[q.lease], q.done)
}

func (p *pending) answer(lease, ttl int64) {
	var err error
	if ttl <= 0 {
		err = store.ErrLeaseNotFound
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	if done := p.byLease[lease]; len(done) > 1 {
		p.byLease[lease] = done[1:]
		done[0] <- err
	} else if len(done) == 1 {
		delete(p.byLease, lease)
		done[0] <- err
	}
}

func (p *pending) overdue(after time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byLease) > 0 && time.Since(p.since) > after
}

func (p *pending) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for lease, done := range p.byLease {
		for _, d := range done {
			d <- err
		}
		delete(p.byLease, lease)
	}
}
