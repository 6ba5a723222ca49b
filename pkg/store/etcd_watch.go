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

// progressTimeout bounds how long a progress request may hold up its caller
// while the stream is being set up.
const progressTimeout = 50 * time.Millisecond

// watches numbers the streams of this process.
var watches atomic.Int64

// etcdWatch is one watch on a stream of its own: progress is answered a stream at
// a time, only when all watches on it have caught up.
type etcdWatch struct {
	store  *Etcd
	prefix string
	ctx    context.Context // over once the watch is closed
	close  context.CancelFunc
	stream atomic.Pointer[context.Context] // names the stream

	// Of the goroutine that calls Next and TryNext.
	next   int64                     // the first revision not delivered
	left   <-chan struct{}           // closed when a member is left out
	opened <-chan clientv3.WatchChan // gives ch, once; nil when it has
	ch     clientv3.WatchChan
	cancel context.CancelFunc // ends ch
	pause  backoff
}

// Watch implements Store.
func (e *Etcd) Watch(prefix string, from int64) Watch {
	w := &etcdWatch{store: e, prefix: prefix, next: from}
	// Without a leader etcd would be silent for as long as it has none; with this
	// it says so.
	w.ctx, w.close = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	w.open()
	return w
}

// open asks for a watch and does not wait for it: as long as no member of etcd
// can be reached, the client does not return, whatever becomes of who calls Next.
func (w *etcdWatch) open() {
	w.left = w.store.steer.leaving()
	stream := metadata.AppendToOutgoingContext(w.ctx, "berth-watch", strconv.FormatInt(watches.Add(1), 10))
	w.stream.Store(&stream)
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(stream)
	opened, next := make(chan clientv3.WatchChan, 1), w.next
	w.opened, w.ch = opened, nil
	go func() {
		opened <- w.store.client.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(next))
	}()
}

// move goes on over another stream: a member that is left out may have this one,
// and tell of nothing any more.
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
			b, told, err := w.take(resp, ok)
			switch {
			case errors.Is(err, ErrCompacted):
				return Batch{}, err
			case err != nil:
				if err := w.reopen(ctx); err != nil {
					return Batch{}, err
				}
			case told:
				return b, nil
			}
		case <-w.left:
			w.move()
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// TryNext implements Watch.
func (w *etcdWatch) TryNext() (Batch, bool, error) {
	for {
		select {
		case w.ch = <-w.opened:
			w.opened = nil
		case resp, ok := <-w.ch:
			b, told, err := w.take(resp, ok)
			switch {
			case errors.Is(err, ErrCompacted):
				return Batch{}, false, err
			case err != nil:
				w.move()
				return Batch{}, false, nil
			case told:
				return b, true, nil
			}
		case <-w.left:
			w.move()
		default:
			return Batch{}, false, nil
		}
	}
}

// reopen goes on where the watch broke off, after a pause.
func (w *etcdWatch) reopen(ctx context.Context) error {
	w.cancel()
	if err := w.pause.sleep(ctx); err != nil {
		return err
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	w.open()
	return nil
}

// take turns an answer of etcd into a batch. The client puts fragments together
// and etcd never splits a revision. The header of an answer with events is no
// progress: of a watch far behind it names the store's revision while there are
// more events to come, so only the events themselves count.
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
	w.pause.reset()
	if resp.IsProgressNotify() {
		w.next = max(w.next, resp.Header.Revision+1)
		return Batch{Revision: resp.Header.Revision}, true, nil
	}
	if len(resp.Events) == 0 {
		return Batch{}, false, nil
	}
	b := Batch{Changes: make([]Change, len(resp.Events))}
	for i, e := range resp.Events {
		b.Changes[i] = Change{KV: fromEtcd(e.Kv), Deleted: e.Type == mvccpb.Event_DELETE}
	}
	b.Revision = b.Changes[len(b.Changes)-1].Mod
	w.next = b.Revision + 1
	return b, true, nil
}

// RequestProgress implements Watch.
func (w *etcdWatch) RequestProgress() {
	ctx, cancel := context.WithTimeout(*w.stream.Load(), progressTimeout)
	defer cancel()
	// An error means that there is no stream now, and so no progress to tell of.
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
