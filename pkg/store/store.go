package store

import (
	"context"
	"time"
)

// DefaultTimeout is the timeout of a call whose context has no deadline.
const DefaultTimeout = 2 * time.Second

// MinRestoreBump is the minimum by which a restore from a backup raises the revision. Revisions that
// differ by more are those before and after a restore: their difference is no number of changes.
const MinRestoreBump = 1_000_000_000

// KV is the state of a key at a revision.
type KV struct {
	Key   string
	Value []byte
	// Create and Mod are the revisions that created and last changed the key.
	Create, Mod int64
	// Lease is the etcd lease to which the key is attached, or 0.
	Lease int64
}

// Change is the put or the deletion of one key. A deletion has only Key and Mod, which is
// the revision that deleted the key.
type Change struct {
	KV
	Deleted bool
}

// Target is the property of a key that a [Compare] examines.
type Target uint8

// The targets.
const (
	TargetCreate Target = iota
	TargetMod
	TargetValue
)

// Compare is one condition of a transaction, on the state before it. The type is comparable,
// so that equal compares can be merged.
type Compare struct {
	Key      string
	Target   Target
	Revision int64
	Value    string
}

// Absent returns a compare that is true if the key does not exist.
func Absent(key string) Compare { return Compare{Key: key, Target: TargetCreate} }

// CreatedAt returns a compare that is true if the key exists and was created at the
// revision.
func CreatedAt(key string, revision int64) Compare {
	return Compare{Key: key, Target: TargetCreate, Revision: revision}
}

// ModifiedAt returns a compare that is true if the key exists and was last changed at the
// revision.
func ModifiedAt(key string, revision int64) Compare {
	return Compare{Key: key, Target: TargetMod, Revision: revision}
}

// HasValue returns a compare that is true if the key exists and has exactly this value.
func HasValue(key string, value []byte) Compare {
	return Compare{Key: key, Target: TargetValue, Value: string(value)}
}

// Holds reports whether the compare is true for the given state of its key. found is
// false if the key does not exist.
func (c Compare) Holds(kv KV, found bool) bool {
	if !found {
		kv = KV{}
	}
	switch c.Target {
	case TargetCreate:
		return kv.Create == c.Revision
	case TargetMod:
		return kv.Mod == c.Revision
	default:
		return found && string(kv.Value) == c.Value
	}
}

// Op is a put or a delete.
type Op struct {
	Key   string
	Value []byte
	// Lease attaches the key to an etcd lease; 0 detaches it.
	Lease  int64
	Delete bool
	// End extends a delete to all keys from Key, inclusive, to End, exclusive.
	End string
}

// Put returns a put without an etcd lease.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// Delete returns the delete of a key. Deleting a key that does not exist changes nothing.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// DeleteRange returns the delete of the keys in [from, to).
func DeleteRange(from, to string) Op { return Op{Key: from, End: to, Delete: true} }

// Txn is one atomic transaction. If every compare is true, all of Then is applied;
// otherwise the keys of Else are read. If, Then and Else have at most [MaxTxnOps]
// elements each. Then must contain each key at most once; this includes the keys in
// ranges that Then deletes.
type Txn struct {
	If   []Compare
	Then []Op
	Else []string
}

// TxnResult is the outcome of a [Txn].
type TxnResult struct {
	Succeeded bool
	// Revision is the store's revision after the transaction. If the transaction changed
	// anything, it is the revision of its changes.
	Revision int64
	// Got contains the keys of Else that exist.
	Got map[string]KV
}

// PageRequest requests the keys in [From, To).
type PageRequest struct {
	From, To string
	// Revision is the revision to read at; 0 reads the latest.
	Revision int64
	// Limit is the maximum number of keys; 0 is no limit.
	Limit int
	// KeysOnly omits the values.
	KeysOnly bool
}

// Page is part of a range, in order of key.
type Page struct {
	KVs []KV
	// Revision is the revision of the read: the requested revision, or the revision of the
	// store.
	Revision int64
	// More is set if the range has more keys than Limit.
	More bool
}

// Next returns the start of the next page. The page must have keys.
func (p Page) Next() string { return p.KVs[len(p.KVs)-1].Key + "\x00" }

// Lease is an etcd lease. TTL is the granted TTL, which may exceed the requested one.
type Lease struct {
	ID  int64
	TTL time.Duration
}

// Batch contains the changes of whole revisions, in order. The changes of one revision are
// in the order of the transaction's operations.
type Batch struct {
	// Reset is set by a [View]: Changes is a complete snapshot and replaces all earlier
	// batches.
	Reset bool
	// Revision is the revision up to which every change was delivered. A batch without
	// changes only advances the revision.
	Revision int64
	Changes  []Change
	// Skipped is set by a [View]. It contains the changes under the prefixes that the view
	// skips. It is empty in a snapshot.
	Skipped []Change
}

// Store is the part of etcd that Berth needs. All methods may be called concurrently. For
// a read, an error that wraps [ErrAmbiguous] only means that the read failed.
type Store interface {
	// Txn executes one transaction.
	Txn(ctx context.Context, txn Txn) (TxnResult, error)
	// Get reads one key linearizably: it sees every write that was answered before the call.
	Get(ctx context.Context, key string) (KV, bool, error)
	// Page reads part of a range, linearizably if the request has no revision. It returns
	// ErrCompacted if the revision was compacted. Range reads all pages.
	Page(ctx context.Context, req PageRequest) (Page, error)
	// Watch returns a watch that delivers the changes of the keys under prefix, starting at
	// a revision. It does not wait for etcd. The caller must close the watch.
	Watch(prefix string, from int64) Watch
	// Grant grants an etcd lease with a TTL of at least ttl.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepAlive renews an etcd lease once and returns its TTL. It returns ErrLeaseNotFound
	// if the lease has expired, which etcd itself does not treat as an error.
	KeepAlive(ctx context.Context, lease int64) (time.Duration, error)
	// Revoke ends an etcd lease and deletes its keys. It returns ErrLeaseNotFound if the
	// lease has expired already.
	Revoke(ctx context.Context, lease int64) error
	// Alarms returns the active alarms, such as NOSPACE, and other faults that prevent
	// writes, as far as the answering member knows them.
	Alarms(ctx context.Context) ([]string, error)
}

// Streamer is a [Store] that can read a range of any size as one stream, in time linear
// in the number of keys. Reading a range in pages takes quadratic time, because etcd
// counts all remaining keys for each page.
type Streamer interface {
	// Stream passes a range to receive, in order of key, in parts that are not empty. It
	// returns the revision of the read: the requested one, or the latest. It ignores Limit.
	// If the revision was compacted, it returns ErrCompacted, possibly after some parts. If
	// etcd does not support streams, it returns ErrNoStream before any part, and the caller
	// must read pages.
	Stream(ctx context.Context, req PageRequest, receive func([]KV)) (revision int64, err error)
}

// Watch delivers changes in order, each once, in whole revisions. After a lost connection
// the watch continues at the same revision. Next and TryNext must be called from one
// goroutine; the other methods may be called from any.
type Watch interface {
	// Next waits for a batch. ErrCompacted means that changes were compacted before they
	// were delivered; it ends the watch. Any other error is the error of ctx.
	Next(ctx context.Context) (Batch, error)
	// TryNext is like Next, but does not wait. It returns false if there is no batch.
	TryNext() (Batch, bool, error)
	// RequestProgress requests a batch, possibly empty, that reaches the store's current
	// revision. The request can be lost, so the caller must repeat it until a batch arrives.
	RequestProgress()
	// Close ends the watch and frees its resources.
	Close()
}
