package store

import (
	"context"
	"time"
)

// DefaultTimeout is the deadline of a call whose context has none.
const DefaultTimeout = 2 * time.Second

// KV is one key as it stands.
type KV struct {
	Key   string
	Value []byte
	// Create and Mod are the revisions that created and last changed the key.
	Create, Mod int64
	// Lease is the etcd lease the key is on, 0 for none.
	Lease int64
}

// Change is one key put or deleted. Of a deletion only Key and Mod are set, and
// Mod is the revision that deleted it.
type Change struct {
	KV
	Deleted bool
}

// Target is what of a key a [Compare] looks at.
type Target uint8

// The targets.
const (
	TargetCreate Target = iota
	TargetMod
	TargetValue
)

// Compare is one condition of a transaction, on the state before it. Compares
// are comparable, so that equal ones can be told.
type Compare struct {
	Key      string
	Target   Target
	Revision int64
	Value    string
}

// Absent holds when the key is not there.
func Absent(key string) Compare { return Compare{Key: key, Target: TargetCreate} }

// CreatedAt holds when the key is there and was created at the revision.
func CreatedAt(key string, revision int64) Compare {
	return Compare{Key: key, Target: TargetCreate, Revision: revision}
}

// ModifiedAt holds when the key is there and was last changed at the revision.
func ModifiedAt(key string, revision int64) Compare {
	return Compare{Key: key, Target: TargetMod, Revision: revision}
}

// HasValue holds when the key is there with exactly this value.
func HasValue(key string, value []byte) Compare {
	return Compare{Key: key, Target: TargetValue, Value: string(value)}
}

// Holds says whether the compare is true of a key as it stands; found is false
// when the key is not there.
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

// Op is one put or delete.
type Op struct {
	Key   string
	Value []byte
	// Lease attaches the key to an etcd lease; 0 takes it off any.
	Lease  int64
	Delete bool
	// End, of a delete, makes it one of all keys from Key on and before End.
	End string
}

// Put puts a value without an etcd lease.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// Delete deletes a key; deleting what is not there changes nothing.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// DeleteRange deletes the keys from one on and before another.
func DeleteRange(from, to string) Op { return Op{Key: from, End: to, Delete: true} }

// Txn is one atomic step: when every compare holds, all of Then; otherwise the
// keys of Else are read. If, Then and Else hold at most [MaxTxnOps] each, and
// Then a key at most once, ranges that it deletes included.
type Txn struct {
	If   []Compare
	Then []Op
	Else []string
}

// TxnResult is what became of a [Txn].
type TxnResult struct {
	Succeeded bool
	// Revision is the store's after the transaction: that of its changes when it
	// succeeded and changed anything.
	Revision int64
	// Got holds the keys of Else which are there.
	Got map[string]KV
}

// PageRequest asks for the keys from From on and before To.
type PageRequest struct {
	From, To string
	// Revision to read at; 0 reads the latest.
	Revision int64
	// Limit is how many keys to answer at most; 0 is no limit.
	Limit int
	// KeysOnly leaves the values out.
	KeysOnly bool
}

// Page is part of a range, in order of key.
type Page struct {
	KVs []KV
	// Revision is what was read at: that of the request, or the store's.
	Revision int64
	// More is set when Limit left keys out.
	More bool
}

// Next is where a range goes on after a page that has keys.
func (p Page) Next() string { return p.KVs[len(p.KVs)-1].Key + "\x00" }

// Lease is an etcd lease. TTL is what etcd granted, which may be more than was
// asked for.
type Lease struct {
	ID  int64
	TTL time.Duration
}

// Batch is changes of whole revisions, in order; the changes of one revision are
// in the order of the transaction's operations.
type Batch struct {
	// Reset is set by a [View]: Changes is everything there is, and replaces
	// whatever was told before.
	Reset bool
	// Revision is what has been reached: every change up to it was delivered. A
	// batch without changes only moves it on.
	Revision int64
	Changes  []Change
	// Skipped, of a [View], is what changed under the prefixes that it skips. A
	// snapshot leaves them out.
	Skipped []Change
}

// Store is what Berth needs of etcd. All methods may be called concurrently.
// Errors that wrap [ErrAmbiguous] mean, for a read, only that it failed.
type Store interface {
	// Txn carries out one transaction.
	Txn(ctx context.Context, txn Txn) (TxnResult, error)
	// Get reads one key, linearizably: it sees every write answered before.
	Get(ctx context.Context, key string) (KV, bool, error)
	// Page reads part of a range, linearizably when no revision is asked for.
	// ErrCompacted when the revision is no longer kept. Range reads all pages.
	Page(ctx context.Context, req PageRequest) (Page, error)
	// Watch delivers the changes of the keys under prefix from a revision on. It
	// never fails at once and must be closed.
	Watch(prefix string, from int64) Watch
	// Grant makes an etcd lease of at least ttl.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepAlive renews an etcd lease once and answers the TTL it now has.
	// ErrLeaseNotFound when the lease is gone, which etcd itself does not call
	// an error.
	KeepAlive(ctx context.Context, lease int64) (time.Duration, error)
	// Revoke ends an etcd lease and deletes the keys on it. ErrLeaseNotFound when
	// it is gone already.
	Revoke(ctx context.Context, lease int64) error
	// Alarms names the alarms that are up, such as NOSPACE, and what else keeps etcd
	// from taking writes, as far as whoever answers has heard.
	Alarms(ctx context.Context) ([]string, error)
}

// Streamer is a [Store] that can answer a range of any size as one stream, which
// takes time in proportion to its keys. All pages of it take etcd that in proportion to
// the square, for it counts with each page what is left.
type Streamer interface {
	// Stream tells of a range in order of key, a part at a time, none of which is
	// empty, and answers the revision that all of it was read at: the one asked
	// for, or the latest. There is no limit. ErrCompacted, perhaps after some
	// parts, when the revision is no longer kept; ErrNoStream, before any, when the
	// other side has no streams: it has pages.
	Stream(ctx context.Context, req PageRequest, tell func([]KV)) (revision int64, err error)
}

// Watch delivers changes in order, each once, whole revisions only. It resumes
// where it was after any break. Next and TryNext are for one goroutine, the
// other methods for any.
type Watch interface {
	// Next waits for a batch. ErrCompacted says that changes were lost for good
	// and ends the watch; any other error is that of ctx.
	Next(ctx context.Context) (Batch, error)
	// TryNext is Next without waiting; false when there is nothing.
	TryNext() (Batch, bool, error)
	// RequestProgress asks for a batch, empty if need be, that has reached the
	// store's revision of now. The request may get lost: ask again.
	RequestProgress()
	// Close ends the watch and frees what it holds.
	Close()
}
