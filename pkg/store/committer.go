package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
)

// ErrFenced means that the term is over: another replica leads, no replica leads, or
// another writer has changed the chain key. After ErrFenced the committer commits
// nothing.
var ErrFenced = errors.New("store: fenced, the term is over")

// Conflict means that a compare of a transaction failed because another writer changed a
// key. The committer remains usable. The caller must decide again once its view has
// reached Revision.
type Conflict struct {
	// Revision is the store's revision when the compares failed.
	Revision int64
	// Failed has the compares that were false.
	Failed []Compare
}

func (c *Conflict) Error() string {
	keys := make([]string, len(c.Failed))
	for i, compare := range c.Failed {
		keys[i] = compare.Key
	}
	return fmt.Sprintf("store: conflict at revision %d on %q", c.Revision, keys)
}

// Write is a group of changes that become durable together, if every compare is true, or
// not at all.
type Write struct {
	Ops []Op
	If  []Compare
}

// Committed reports that one transaction has made the next Writes writes durable.
type Committed struct {
	Writes   int
	Revision int64
}

// CommitterConfig describes the term of a Committer.
type CommitterConfig struct {
	// LeaderKey was created at revision Term. The term lasts while the key exists.
	LeaderKey string
	Term      int64
	// ChainKey is the key whose value names the last committed batch. Chain is this value at
	// the time of the win, or nil if the key does not exist.
	ChainKey string
	Chain    []byte
	// Wait waits before each further attempt at a transaction; attempt is 2 or more. If Wait
	// returns an error, the commit ends. The default waits as long as Backoff says.
	Wait func(ctx context.Context, attempt int) error
	// Attempted, if set, is called after each attempt. err is the error of the attempt if
	// the outcome is ambiguous, and nil if it is definite.
	Attempted func(err error)
}

const (
	// attemptTimeout is the timeout of the first attempts at a transaction. If an etcd
	// member forwards a write to a leader that has just died, the member answers only after
	// 7 s, with an ambiguous error. The next attempt reaches another member, or the same
	// member once it knows the new leader. If etcd is slow, the timeout is three times the
	// duration of the last answered attempt, so that etcd does not receive every transaction
	// twice.
	attemptTimeout = 300 * time.Millisecond
	// electionTime is how long attempts have this short timeout. It is longer than an
	// election in etcd. Later attempts have DefaultTimeout.
	electionTime = 5 * time.Second
)

// Committer makes the writes of one term durable, in order, one transaction at a time.
// Each transaction compares the create revision of the leader key, which fences the
// transaction, and the value of the chain key, which names the previous transaction. So
// the committer can send a transaction with an unknown outcome again until the chain key
// shows the outcome: the transaction is applied at most once, and never after a later
// transaction.
//
// A Committer must be used from one goroutine.
type Committer struct {
	store Store
	cfg   CommitterConfig
	chain []byte // value of the chain key; nil if it does not exist
	count int64
	took  time.Duration // of the last attempt that was answered
	over  error         // set once the committer cannot commit any more
}

// NewCommitter returns the committer of a term.
func NewCommitter(s Store, cfg CommitterConfig) *Committer {
	if cfg.Wait == nil {
		cfg.Wait = func(ctx context.Context, attempt int) error { return Sleep(ctx, Backoff(attempt-1)) }
	}
	if cfg.Attempted == nil {
		cfg.Attempted = func(error) {}
	}
	return &Committer{store: s, cfg: cfg, chain: cfg.Chain}
}

// Commit makes the writes durable, in order, as many in a transaction as fit. Commit
// stops at the first write that fails. The writes that it returns are durable. The later
// writes are not durable and never will be, except after ErrAmbiguous. The error states
// why Commit stopped:
//
//   - nil: all writes are durable.
//   - a [*Conflict]: the caller must decide again.
//   - a definite error of this package, such as [ErrLeaseNotFound]: etcd refused the
//     first write that is not durable. No other write caused the error.
//   - [ErrFull] without [ErrAmbiguous]: etcd accepts no writes. The committer remains
//     usable.
//   - [ErrFenced]: the term is over.
//   - [ErrAmbiguous]: ctx ended first. The writes of one more transaction may be durable;
//     only the next leader learns whether they are. The committer is unusable.
//
// The operations of a transaction are in the order of the writes. If two writes change
// the same key, the operation is at the place of the first and has the value of the
// second. The chain key is last.
func (c *Committer) Commit(ctx context.Context, writes []Write) ([]Committed, error) {
	var done []Committed
	limit := len(writes)
	for len(writes) > 0 {
		if c.over != nil {
			return done, c.over
		}
		b := pack(writes[:min(limit, len(writes))], maxOps, maxBytes-c.fenceBytes())
		revision, err := c.commit(ctx, b)
		switch {
		case err == nil:
			done = append(done, Committed{Writes: b.writes, Revision: revision})
			writes = writes[b.writes:]
		case isDefinite(err) && b.writes > 1 && !errors.Is(err, ErrFull):
			// One of the writes caused the error. The other writes succeed in separate
			// transactions.
			limit = 1
		default:
			return done, err
		}
	}
	return done, nil
}

// isDefinite reports whether etcd refused the request because of its content.
func isDefinite(err error) bool {
	var conflict *Conflict
	return !errors.As(err, &conflict) && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrAmbiguous)
}

// commit sends one batch until its outcome is known, and returns the revision that
// committed it.
func (c *Committer) commit(ctx context.Context, b batch) (int64, error) {
	id := c.nextID()
	res, lost, err := c.resolve(ctx, c.fence(b, id), false)
	revision := res.Revision
	if err == nil && !res.Succeeded {
		revision, err = c.evaluate(b, id, res)
	}
	if err == nil {
		c.chain = id
		return revision, nil
	}
	if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrAmbiguous) {
		if !lost {
			return 0, err
		}
		if revision, err = c.seal(ctx, id, err); err == nil {
			return revision, nil
		}
	}
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrAmbiguous) {
		c.over = err
	}
	return 0, err
}

// resolve repeats one transaction until its outcome is known or ctx ends. The argument
// and the result lost mean that the outcome of an earlier attempt is unknown, so etcd may
// still apply that attempt.
func (c *Committer) resolve(ctx context.Context, txn Txn, lost bool) (TxnResult, bool, error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		sent := time.Now()
		deadline := max(attemptTimeout, 3*c.took)
		if sent.Sub(began) > electionTime {
			deadline = DefaultTimeout
		}
		actx, cancel := context.WithTimeout(ctx, deadline)
		res, err := c.store.Txn(actx, txn)
		if errors.Is(err, ErrFull) && !lost {
			res, err = c.checkFull(actx, txn, err)
		}
		cancel()
		if !errors.Is(err, ErrAmbiguous) {
			c.took = min(time.Since(sent), DefaultTimeout/3)
			c.cfg.Attempted(nil)
			return res, lost, err
		}
		c.cfg.Attempted(err)
		lost = lost || !errors.Is(err, ErrFull)
		if ctx.Err() != nil || c.cfg.Wait(ctx, attempt+1) != nil {
			return res, true, err
		}
	}
}

// checkFull finds out whether etcd applied a transaction that it answered with ErrFull.
// No other attempt may be in flight. etcd also returns this error for the transaction
// that fills it, although it applies this transaction. checkFull sends the same compares
// without a write, which a full etcd accepts. If all compares are true, nothing was
// written and this replica leads. If the outcome remains unknown, checkFull returns the
// error unknown.
func (c *Committer) checkFull(ctx context.Context, txn Txn, unknown error) (TxnResult, error) {
	txn.Then = nil
	res, err := c.store.Txn(ctx, txn)
	switch {
	case err != nil:
		return TxnResult{}, unknown
	case res.Succeeded:
		return TxnResult{}, fmt.Errorf("%w: nothing was written", ErrFull)
	default:
		return res, nil
	}
}

// fence returns the transaction of a batch, with the compares of the fence and the write
// of the chain key. The transaction may reuse the memory of b.ops.
func (c *Committer) fence(b batch, id []byte) Txn {
	chain := Absent(c.cfg.ChainKey)
	if c.chain != nil {
		chain = HasValue(c.cfg.ChainKey, c.chain)
	}
	return Txn{
		If:   append([]Compare{CreatedAt(c.cfg.LeaderKey, c.cfg.Term), chain}, b.compares...),
		Then: append(b.ops, Put(c.cfg.ChainKey, id)),
		Else: append([]string{c.cfg.LeaderKey, c.cfg.ChainKey}, b.compared...),
	}
}

// evaluate returns the meaning of failed compares. It checks the chain key first: if the
// chain key names the batch, the batch was committed, whatever has happened since.
func (c *Committer) evaluate(b batch, id []byte, res TxnResult) (int64, error) {
	chain, linked := res.Got[c.cfg.ChainKey]
	if linked && bytes.Equal(chain.Value, id) {
		return chain.Mod, nil
	}
	leads := res.Got[c.cfg.LeaderKey].Create == c.cfg.Term
	if !leads || linked != (c.chain != nil) || !bytes.Equal(chain.Value, c.chain) {
		return 0, fmt.Errorf("%w: term %d, at revision %d", ErrFenced, c.cfg.Term, res.Revision)
	}
	conflict := &Conflict{Revision: res.Revision}
	for _, compare := range b.compares {
		kv, found := res.Got[compare.Key]
		if !compare.Holds(kv, found) {
			conflict.Failed = append(conflict.Failed, compare)
		}
	}
	return 0, conflict
}

// seal makes a refusal final after an attempt with an unknown outcome. etcd may still
// apply that attempt, for example if a key that the attempt compares for absence was
// deleted in the meantime. Therefore seal writes a new value of the chain key. Either the
// lost attempt came first and is committed, or etcd never applies it and the refusal is
// final.
func (c *Committer) seal(ctx context.Context, lost []byte, refusal error) (int64, error) {
	id := c.nextID()
	res, _, err := c.resolve(ctx, c.fence(batch{}, id), true)
	if err == nil && !res.Succeeded {
		if chain := res.Got[c.cfg.ChainKey]; bytes.Equal(chain.Value, lost) {
			c.chain = lost
			return chain.Mod, nil
		}
		_, err = c.evaluate(batch{}, id, res)
	}
	if err != nil {
		return 0, err
	}
	c.chain = id
	return 0, refusal
}

// nextID returns the chain value of the next batch of the term.
func (c *Committer) nextID() []byte {
	c.count++
	id, err := proto.Marshal(&recordv1.Chain{Batch: fmt.Sprintf("%d-%d", c.cfg.Term, c.count)})
	if err != nil {
		panic(err) // encoding a message with one ASCII string cannot fail
	}
	return id
}

// fenceBytes returns an upper estimate of the bytes that the fence adds to a transaction.
func (c *Committer) fenceBytes() int {
	return 2*len(c.cfg.LeaderKey) + 3*len(c.cfg.ChainKey) + 2*len(c.chain) + 5*overhead
}
