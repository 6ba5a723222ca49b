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

// ErrFenced means that the term is over: another replica leads, or none, or somebody else
// has changed the chain key. Nothing is committed after it.
var ErrFenced = errors.New("store: fenced, the term is over")

// Conflict means that a transaction was refused because of a change by another writer. The
// committer remains usable. The caller decides again once its view has reached Revision.
type Conflict struct {
	// Revision is the store's revision when the compares failed.
	Revision int64
	// Failed are the compares that were false.
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
	// ChainKey names the last committed batch. Chain is its value at the time of the win,
	// nil if the key does not exist.
	ChainKey string
	Chain    []byte
	// Wait pauses before attempt number n (2, 3, …) of a transaction. Its error ends the
	// commit. The default is Backoff.
	Wait func(ctx context.Context, attempt int) error
	// Attempted, if set, is called after each attempt, with the error of an ambiguous
	// one and nil for a definite one.
	Attempted func(err error)
}

const (
	// attemptTimeout is the deadline of the first attempts at a transaction. If a member
	// forwards a write to a leader that has just died, it answers only after 7 s, with an
	// ambiguous error. The next attempt reaches another member, or this one once it knows
	// the new leader. A slow etcd gets three times the duration of the last answer, so
	// that it does not receive everything twice.
	attemptTimeout = 300 * time.Millisecond
	// electionTime is how long attempts are that short; it exceeds an election of etcd.
	// Later attempts have DefaultTimeout.
	electionTime = 5 * time.Second
)

// Committer makes the writes of one term durable, in order, one transaction at a time.
// Each transaction compares the create revision of the leader key, which fences it, and the
// value of the chain key, which names the transaction before it. So a transaction with an
// unknown outcome can be sent again until the chain shows the outcome: it is applied at most
// once, and never after a later one.
//
// A Committer must be used from one goroutine.
type Committer struct {
	store Store
	cfg   CommitterConfig
	chain []byte // value of the chain key; nil if it does not exist
	count int64
	took  time.Duration // of the last attempt that was answered
	over  error         // set once nothing can be committed any more
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

// Commit makes the writes durable, in order, as many in a transaction as fit. It stops at
// the first write that fails. The writes that it returns are durable. The later ones are
// not, and never will be, except after ErrAmbiguous. The error states why it stopped:
//
//   - nil: all writes are durable.
//   - a [*Conflict]: decide again.
//   - a definite error of this package, such as [ErrLeaseNotFound]: the first write that
//     is not durable is refused, and it alone is to blame.
//   - [ErrFull] without [ErrAmbiguous]: etcd takes no writes. The committer remains usable.
//   - [ErrFenced]: the term is over.
//   - [ErrAmbiguous]: ctx ended first. Only the successor learns whether the writes of one
//     more transaction are durable. The committer is unusable.
//
// The operations of a transaction have the order of the writes. A key that is written twice
// has its first place. The chain key is last.
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
			// One of them is to blame. The others succeed in transactions of their own.
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

// resolve repeats one transaction until its outcome is known or ctx ends. Lost, as an
// argument and as a result, means that the outcome of an earlier attempt is unknown, so
// that attempt may still arrive.
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

// checkFull finds out whether a transaction was applied that etcd answered with ErrFull,
// when no other attempt is in flight: etcd also answers so to the transaction that fills it,
// which it applies. checkFull sends the same compares without any write, which a full etcd
// answers. If all compares are true, nothing was written and this replica leads. If the
// outcome remains unknown, it returns the error it was given.
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

// fence returns the transaction of a batch, which takes over the batch's operations.
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

// evaluate interprets failed compares. It checks the chain first: a batch that the chain
// names was committed, whatever has happened since.
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

// seal makes a refusal final after an attempt with an unknown outcome. That attempt may
// still arrive, and a key that it compares for absence may have been deleted by then. So
// seal moves the chain. Either the lost attempt was first and is committed, or it never
// will be and the refusal is final.
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
		panic(err) // a message of one ASCII string always encodes
	}
	return id
}

// fenceBytes estimates the bytes that the fence adds to a transaction.
func (c *Committer) fenceBytes() int {
	return 2*len(c.cfg.LeaderKey) + 3*len(c.cfg.ChainKey) + 2*len(c.chain) + 5*overhead
}
