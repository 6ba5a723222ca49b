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

// ErrFenced says that the term is over: another leads, nobody does, or the chain
// was moved by somebody else. Nothing is ever committed after it.
var ErrFenced = errors.New("store: fenced, the term is over")

// Conflict says that a transaction was refused because of what others wrote. The
// committer goes on working; the writer decides again once its view has reached
// Revision.
type Conflict struct {
	// Revision is the store's when the compares failed.
	Revision int64
	// Failed are the compares that did not hold.
	Failed []Compare
}

func (c *Conflict) Error() string {
	keys := make([]string, len(c.Failed))
	for i, compare := range c.Failed {
		keys[i] = compare.Key
	}
	return fmt.Sprintf("store: conflict at revision %d on %q", c.Revision, keys)
}

// Write is changes that become durable together or not at all, if every compare
// holds.
type Write struct {
	Ops []Op
	If  []Compare
}

// Committed tells that the first Writes writes not told of before are durable,
// by one transaction.
type Committed struct {
	Writes   int
	Revision int64
}

// CommitterConfig says for which term a Committer works.
type CommitterConfig struct {
	// LeaderKey was created at revision Term, and holds while it is there.
	LeaderKey string
	Term      int64
	// ChainKey names the last batch committed; Chain is its value as of the win,
	// nil when the key is not there.
	ChainKey string
	Chain    []byte
	// MaxOps and MaxBytes bound a transaction of several writes, the fence
	// included; 120 and 256 KiB by default.
	MaxOps, MaxBytes int
	// Attempt is the deadline of each of the first attempts at a transaction; 300 ms
	// by default. A member of etcd that passes a write on to a leader which has just
	// died keeps it for 7 s and then answers that it does not know: the next attempt
	// is at another member, or at one that knows better by then. An etcd that is slow
	// is given three times what it last took, so that it is not sent everything
	// twice; and DefaultTimeout once it has had five seconds for less.
	Attempt time.Duration
	// Wait pauses before attempt number n (2, 3, …) of one transaction; its error
	// ends the commit. By default it sleeps as Backoff says.
	Wait func(ctx context.Context, attempt int) error
	// Attempted is told of each attempt: the error of one whose outcome is open, nil
	// for one that is definite. By default nobody is told.
	Attempted func(err error)
}

// electing is for how long attempts at a transaction are short: longer than etcd
// takes to elect.
const electing = 5 * time.Second

// Committer makes the writes of one term durable, in order, one transaction at a
// time. Each is fenced by the create revision of the leader key and chained to
// the one before by the value of the chain key, so that a transaction whose
// outcome is unknown can be sent again until the chain tells what became of it:
// it is applied at most once, and never after a later one.
//
// It is for one goroutine.
type Committer struct {
	store Store
	cfg   CommitterConfig
	chain []byte // value of the chain key; nil when absent
	count int64
	took  time.Duration // by the last attempt that was answered
	over  error         // set once nothing can be committed any more
}

// NewCommitter makes the committer of a term.
func NewCommitter(s Store, cfg CommitterConfig) *Committer {
	if cfg.MaxOps == 0 {
		cfg.MaxOps = 120
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 10
	}
	if cfg.Attempt == 0 {
		cfg.Attempt = 300 * time.Millisecond
	}
	if cfg.Wait == nil {
		cfg.Wait = func(ctx context.Context, attempt int) error { return Sleep(ctx, Backoff(attempt-1)) }
	}
	if cfg.Attempted == nil {
		cfg.Attempted = func(error) {}
	}
	return &Committer{store: s, cfg: cfg, chain: cfg.Chain}
}

// Commit makes the writes durable, in order, as many to a transaction as fit. It
// stops at the first that does not succeed: what it answers is durable, the
// writes after that are not and, but for one case, never will be. The error says
// why it stopped:
//
//   - nil: all are durable.
//   - a [*Conflict]: decide again.
//   - one that wraps a definite error of this package, such as
//     [ErrLeaseNotFound]: the first write not durable is refused, and is to
//     blame by itself.
//   - [ErrFull], without [ErrAmbiguous]: etcd takes no writes. The committer goes
//     on working once somebody has made room.
//   - [ErrFenced]: the term is over.
//   - [ErrAmbiguous]: ctx ended first. Whether the writes of one more
//     transaction are durable only the successor will know; the committer is of
//     no more use.
//
// In the transaction the operations keep the order of the writes, and a key that
// is written twice its first place; the chain comes last.
func (c *Committer) Commit(ctx context.Context, writes []Write) ([]Committed, error) {
	var done []Committed
	limit := len(writes)
	for len(writes) > 0 {
		if c.over != nil {
			return done, c.over
		}
		b := pack(writes[:min(limit, len(writes))], c.cfg.MaxOps, c.cfg.MaxBytes-c.fenceBytes())
		revision, err := c.commit(ctx, b)
		switch {
		case err == nil:
			done = append(done, Committed{Writes: b.writes, Revision: revision})
			writes = writes[b.writes:]
		case isDefinite(err) && b.writes > 1 && !errors.Is(err, ErrFull):
			// One of them is to blame. Singly, the others get through.
			limit = 1
		default:
			return done, err
		}
	}
	return done, nil
}

// isDefinite says that etcd refused the request itself.
func isDefinite(err error) bool {
	var conflict *Conflict
	return !errors.As(err, &conflict) && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrAmbiguous)
}

// commit carries out one batch to a known outcome: the revision that committed
// it, or why it is not.
func (c *Committer) commit(ctx context.Context, b batch) (int64, error) {
	id := c.nextID()
	res, lost, err := c.resolve(ctx, c.fence(b, id), false)
	revision := res.Revision
	if err == nil && !res.Succeeded {
		revision, err = c.judge(b, id, res)
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

// resolve repeats one transaction until its outcome is known or ctx is over. Lost
// says, as it is given and as it is answered, that an attempt which may still
// arrive had no known outcome.
func (c *Committer) resolve(ctx context.Context, txn Txn, lost bool) (TxnResult, bool, error) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		sent := time.Now()
		deadline := max(c.cfg.Attempt, 3*c.took)
		if sent.Sub(began) > electing {
			deadline = max(c.cfg.Attempt, DefaultTimeout)
		}
		actx, cancel := context.WithTimeout(ctx, deadline)
		res, err := c.store.Txn(actx, txn)
		if errors.Is(err, ErrFull) && !lost {
			res, err = c.look(actx, txn, err)
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

// look finds out what came of a transaction that etcd answered to be full, and of
// which no attempt is under way any more: the one that fills it is answered so, and
// is applied. It asks the same of etcd without writing anything, which a full etcd
// answers: where all compares hold, nothing was written and this replica leads. The
// error is the one given while nobody knows.
func (c *Committer) look(ctx context.Context, txn Txn, open error) (TxnResult, error) {
	txn.Then = nil
	res, err := c.store.Txn(ctx, txn)
	switch {
	case err != nil:
		return TxnResult{}, open
	case res.Succeeded:
		return TxnResult{}, fmt.Errorf("%w: nothing of it was written", ErrFull)
	default:
		return res, nil
	}
}

// fence makes the transaction of a batch, whose operations become the
// transaction's.
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

// judge says what failed compares mean. The chain comes first: a batch that it
// names was committed, whatever has happened since.
func (c *Committer) judge(b batch, id []byte, res TxnResult) (int64, error) {
	chain, linked := res.Got[c.cfg.ChainKey]
	if linked && bytes.Equal(chain.Value, id) {
		return chain.Mod, nil
	}
	leads := res.Got[c.cfg.LeaderKey].Create == c.cfg.Term
	if !leads || linked != (c.chain != nil) || !bytes.Equal(chain.Value, c.chain) {
		return 0, fmt.Errorf("%w: term %d, seen at revision %d", ErrFenced, c.cfg.Term, res.Revision)
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

// seal makes a refusal final after an attempt was lost. That attempt may still
// arrive, and a key compared for absence may be gone by then; so the chain is
// moved on, and either the lost attempt got there first and is committed, or it
// never will be and the refusal stands.
func (c *Committer) seal(ctx context.Context, lost []byte, refusal error) (int64, error) {
	id := c.nextID()
	res, _, err := c.resolve(ctx, c.fence(batch{}, id), true)
	if err == nil && !res.Succeeded {
		if chain := res.Got[c.cfg.ChainKey]; bytes.Equal(chain.Value, lost) {
			c.chain = lost
			return chain.Mod, nil
		}
		_, err = c.judge(batch{}, id, res)
	}
	if err != nil {
		return 0, err
	}
	c.chain = id
	return 0, refusal
}

// nextID names the next batch of the term.
func (c *Committer) nextID() []byte {
	c.count++
	id, err := proto.Marshal(&recordv1.Chain{Batch: fmt.Sprintf("%d-%d", c.cfg.Term, c.count)})
	if err != nil {
		panic(err) // a message of one ASCII string always encodes
	}
	return id
}

// fenceBytes is what the fence adds to a transaction, roughly.
func (c *Committer) fenceBytes() int {
	return 2*len(c.cfg.LeaderKey) + 3*len(c.cfg.ChainKey) + 2*len(c.chain) + 5*overhead
}
