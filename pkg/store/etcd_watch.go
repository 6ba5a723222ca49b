package store

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// progressTimeout is the maximum time for which a progress request may block its caller
// while the client creates the stream.
const progressTimeout = 50 * time.Millisecond

// watches numbers the streams of this process.
var watches atomic.Int64

// etcdWatch is one watch on its own stream. etcd reports progress for a whole stream, and
// only once all watches on the stream have caught up.
type etcdWatch struct {
	store  *Etcd
	prefix string
	ctx    context.Context // ends when the watch is closed
	close  context.CancelFunc
	stream atomic.Pointer[context.Context] // its metadata distinguish the stream from the other streams

	// Only the goroutine that calls Next and TryNext uses the fields below.
	next     int64                     // the first revision not delivered
	excluded <-chan struct{}           // closed when a member is excluded
	opened   <-chan clientv3.WatchChan // delivers ch once, then nil
	ch       clientv3.WatchChan
	cancel   context.CancelFunc // ends ch
	failures int                // since the last answer
}

// Watch implements Store.
func (e *Etcd) Watch(prefix string, from int64) Watch {
	w := &etcdWatch{store: e, prefix: prefix, next: from}
	// Without this requirement a member that knows no leader would send neither changes nor
	// errors.
	w.ctx, w.close = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	w.open()
	return w
}

// open requests a watch in a new goroutine. The client's Watch does not return while no
// etcd member is reachable, even if the context of Next ends.
func (w *etcdWatch) open() {
	w.excluded = w.store.members.excluded()
	stream := metadata.AppendToOutgoingContext(w.ctx, "berth-watch", strconv.FormatInt(watches.Add(1), 10))
	w.stream.Store(&stream)
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(stream)
	opened, from := make(chan clientv3.WatchChan, 1), w.next
	if from > 1 {
		// etcd reports no progress of a watch before the store has reached its first revision. So the
		// watch starts with the last delivered revision, whose changes take drops.
		from--
	}
	w.opened, w.ch = opened, nil
	go func() {
		opened <- w.store.client.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	}()
}

// move continues on a new stream, because the member of the current stream may be
// excluded and may send nothing any more.
func (w *etcdWatch) move() {
	w.cancel()
	w.open()
}

// Next implements Watch.
func (w *etcdWatch) Next(ctx context.Context) (Batch, error) {
	for {
		select {
		case w.ch = <-w.opened:
			w.opened = nil
		case resp, ok := <-w.ch:
			b, ok, err := w.take(resp, ok)
			switch {
			case errors.Is(err, ErrCompacted):
				return Batch{}, err
			case err != nil:
				if err := w.reopen(ctx); err != nil {
					return Batch{}, err
				}
			case ok:
				return b, nil
			}
		case <-w.excluded:
			w.move()
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// tryFor is how long TryNext waits. It is enough for a response that has already arrived.
// Only tests call TryNext on a real etcd.
const tryFor = time.Millisecond

// TryNext implements Watch.
func (w *etcdWatch) TryNext() (Batch, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryFor)
	defer cancel()
	b, err := w.Next(ctx)
	if err != nil && !errors.Is(err, ErrCompacted) {
		return Batch{}, false, nil
	}
	return b, err == nil, err
}

// reopen waits for a pause and opens a new stream, which continues after the last
// delivered revision.
func (w *etcdWatch) reopen(ctx context.Context) error {
	w.cancel()
	w.failures++
	if err := Sleep(ctx, Backoff(w.failures)); err != nil {
		return err
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	w.open()
	return nil
}

// take converts a response of etcd to a batch. The client joins fragments, and etcd never
// splits a revision. The revision of a batch with events is that of the last event, not
// of the header: if the watch is far behind, the header contains the store's revision
// although more events follow.
func (w *etcdWatch) take(resp clientv3.WatchResponse, ok bool) (Batch, bool, error) {
	if !ok {
		return Batch{}, false, errors.New("watch closed")
	}
	if err := resp.Err(); err != nil {
		if errors.Is(err, rpctypes.ErrCompacted) {
			return Batch{}, false, ErrCompacted
		}
		return Batch{}, false, err
	}
	w.failures = 0
	if resp.IsProgressNotify() {
		w.next = max(w.next, resp.Header.Revision+1)
		return Batch{Revision: resp.Header.Revision}, true, nil
	}
	b := Batch{Changes: make([]Change, 0, len(resp.Events))}
	for _, e := range resp.Events {
		if e.Kv.ModRevision >= w.next {
			b.Changes = append(b.Changes, Change{KV: fromEtcd(e.Kv), Deleted: e.Type == mvccpb.Event_DELETE})
		}
	}
	if len(b.Changes) == 0 {
		return Batch{}, false, nil
	}
	b.Revision = b.Changes[len(b.Changes)-1].Mod
	w.next = b.Revision + 1
	return b, true, nil
}

// RequestProgress implements Watch.
func (w *etcdWatch) RequestProgress() {
	ctx, cancel := context.WithTimeout(*w.stream.Load(), progressTimeout)
	defer cancel()
	// If this fails, there is no stream now, so etcd has no progress to report.
	_ = w.store.client.RequestProgress(ctx)
}

// Close implements Watch.
func (w *etcdWatch) Close() { w.close() }

func fromEtcd(kv *mvccpb.KeyValue) KV {
	return KV{
		Key: string(kv.Key), Value: kv.Value,
		Create: kv.CreateRevision, Mod: kv.ModRevision, Lease: kv.Lease,
	}
}
