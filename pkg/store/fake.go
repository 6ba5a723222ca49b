package store

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"
)

// Fake is an etcd in memory, with revisions, etcd leases, watches, compaction and the
// limits of a transaction. A hook can make any call fail in every way in which a real
// call can fail. Fake starts no goroutine. A simulator can drive it from a single
// goroutine with its own clock and the TryNext methods.
type Fake struct {
	cfg FakeConfig

	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      map[string][]version
	names     []string // the keys of the map keys; sorted, unless unsorted is set
	unsorted  bool
	leases    map[int64]*fakeLease
	lastLease int64
	history   []Revision
	delayed   []Txn // transactions that ApplyLater delays
	alarms    []string
	broken    int64         // number of calls of BreakWatches
	moved     chan struct{} // closed and replaced when watches must check again
}

// FakeConfig configures a Fake. The zero value is ready to use.
type FakeConfig struct {
	// Clock decides when etcd leases expire; time.Now by default. With the default clock a
	// waiting watch receives the expiry in time. With another clock leases expire at the
	// next call or Tick.
	Clock func() time.Time
	// MinTTL is the shortest TTL of an etcd lease; 2 s by default, as in etcd.
	MinTTL time.Duration
	// WatchRevisions is the maximum number of revisions in one batch of a watch; 1,000 by
	// default, as in etcd.
	WatchRevisions int
	// Hook decides the outcome of every call. The Fake holds no lock while Hook runs, so
	// Hook may block or use the Fake.
	Hook func(ctx context.Context, call Call) Outcome
}

// Revision contains the changes of one revision, in the order of its operations.
type Revision struct {
	Revision int64
	Changes  []Change
}

type version struct {
	KV
	deleted bool
}

type fakeLease struct {
	ttl      time.Duration
	deadline time.Time
	keys     map[string]struct{}
}

var _ Store = (*Fake)(nil)

// NewFake returns an empty store at revision 1, like a new etcd.
func NewFake(cfg FakeConfig) *Fake {
	if cfg.MinTTL == 0 {
		cfg.MinTTL = 2 * time.Second
	}
	if cfg.WatchRevisions == 0 {
		cfg.WatchRevisions = 1000
	}
	return &Fake{
		cfg: cfg, revision: 1,
		keys: map[string][]version{}, leases: map[int64]*fakeLease{},
		moved: make(chan struct{}),
	}
}

// Txn implements Store.
func (f *Fake) Txn(ctx context.Context, txn Txn) (TxnResult, error) {
	out := f.enter(ctx, Call{Method: MethodTxn, Txn: &txn})
	f.mu.Lock()
	defer f.mu.Unlock()
	switch out.Apply {
	case ApplyNever:
		return TxnResult{}, out.Err
	case ApplyLater:
		f.delayed = append(f.delayed, txn)
		return TxnResult{}, out.Err
	}
	res, err := f.txn(txn)
	if err == nil {
		err = out.Err
	}
	if err != nil {
		return TxnResult{}, err
	}
	return res, nil
}

// txn checks and applies a transaction like etcd.
func (f *Fake) txn(txn Txn) (TxnResult, error) {
	if err := checkTxn(txn); err != nil {
		return TxnResult{}, err
	}
	f.expire()
	ok := !slices.ContainsFunc(txn.If, func(c Compare) bool { return !c.Holds(f.at(c.Key, f.revision)) })
	if !ok {
		got := map[string]KV{}
		for _, key := range txn.Else {
			if kv, found := f.at(key, f.revision); found {
				got[key] = kv
			}
		}
		return TxnResult{Revision: f.revision, Got: got}, nil
	}
	for _, op := range txn.Then {
		if !op.Delete && op.Lease != 0 && f.leases[op.Lease] == nil {
			return TxnResult{}, fmt.Errorf("%w: %x", ErrLeaseNotFound, op.Lease)
		}
	}
	f.apply(txn.Then)
	return TxnResult{Succeeded: true, Revision: f.revision}, nil
}

// apply applies operations in one new revision. If they change nothing, the revision
// stays the same.
func (f *Fake) apply(ops []Op) {
	next := f.revision + 1
	var changes []Change
	for _, op := range f.singly(ops) {
		old, found := f.at(op.Key, f.revision)
		if op.Delete && !found {
			continue
		}
		if l := f.leases[old.Lease]; l != nil {
			delete(l.keys, op.Key)
		}
		c := Change{KV: KV{Key: op.Key, Mod: next}, Deleted: op.Delete}
		if !op.Delete {
			c.Value, c.Create, c.Lease = slices.Clone(op.Value), next, op.Lease
			if found {
				c.Create = old.Create
			}
			if l := f.leases[op.Lease]; l != nil {
				l.keys[op.Key] = struct{}{}
			}
		}
		if _, known := f.keys[op.Key]; !known {
			f.names, f.unsorted = append(f.names, op.Key), true
		}
		f.keys[op.Key] = append(f.keys[op.Key], version{c.KV, op.Delete})
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return
	}
	f.revision = next
	f.history = append(f.history, Revision{next, changes})
	f.wake()
}

// singly replaces the delete of a range with deletes of the keys in the range.
func (f *Fake) singly(ops []Op) []Op {
	if !slices.ContainsFunc(ops, func(op Op) bool { return op.End != "" }) {
		return ops
	}
	var single []Op
	for _, op := range ops {
		if op.End == "" {
			single = append(single, op)
			continue
		}
		for _, name := range f.between(op.Key, op.End) {
			single = append(single, Delete(name))
		}
	}
	return single
}

// between returns the keys in [from, to) that ever existed.
func (f *Fake) between(from, to string) []string {
	if f.unsorted {
		slices.Sort(f.names)
		f.unsorted = false
	}
	first, _ := slices.BinarySearch(f.names, from)
	end, _ := slices.BinarySearch(f.names, to)
	return f.names[first:max(first, end)]
}

// at returns the state of a key at a revision.
func (f *Fake) at(key string, revision int64) (KV, bool) {
	vs := f.keys[key]
	i := sort.Search(len(vs), func(i int) bool { return vs[i].Mod > revision })
	if i == 0 || vs[i-1].deleted {
		return KV{}, false
	}
	return vs[i-1].KV, true
}

// Get implements Store.
func (f *Fake) Get(ctx context.Context, key string) (KV, bool, error) {
	out := f.enter(ctx, Call{Method: MethodGet, Key: key})
	if out.Err != nil {
		return KV{}, false, out.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	kv, found := f.at(key, f.revision)
	return kv, found, nil
}

// Page implements Store.
func (f *Fake) Page(ctx context.Context, req PageRequest) (Page, error) {
	out := f.enter(ctx, Call{Method: MethodPage, Key: req.From})
	if out.Err != nil {
		return Page{}, out.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	page := Page{Revision: req.Revision}
	switch {
	case req.Revision == 0:
		page.Revision = f.revision
	case req.Revision > f.revision:
		return Page{}, ErrFutureRevision
	case req.Revision < f.compacted:
		return Page{}, ErrCompacted
	}
	for _, name := range f.between(req.From, req.To) {
		kv, found := f.at(name, page.Revision)
		if !found {
			continue
		}
		if req.Limit > 0 && len(page.KVs) == req.Limit {
			page.More = true
			break
		}
		if req.KeysOnly {
			kv.Value = nil
		}
		page.KVs = append(page.KVs, kv)
	}
	return page, nil
}

// wake makes every waiting watch check again.
func (f *Fake) wake() {
	close(f.moved)
	f.moved = make(chan struct{})
}
