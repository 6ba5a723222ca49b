package store

import (
	"context"
	"errors"
	"slices"
)

// Method names a call of a Store in a [Call].
type Method string

// The methods that a hook receives.
const (
	MethodTxn       Method = "Txn"
	MethodGet       Method = "Get"
	MethodPage      Method = "Page"
	MethodGrant     Method = "Grant"
	MethodKeepAlive Method = "KeepAlive"
	MethodRevoke    Method = "Revoke"
	MethodAlarms    Method = "Alarms"
)

// Call is a call whose outcome a hook decides.
type Call struct {
	Method Method
	// Txn is set for MethodTxn, Key for reads, Lease for KeepAlive and Revoke.
	Txn   *Txn
	Key   string
	Lease int64
}

// Adds reports whether a call grants an etcd lease or puts a key. A full etcd refuses
// such calls, because they need space. Deletes and renewals need no space.
func (c Call) Adds() bool {
	if c.Method == MethodTxn {
		return slices.ContainsFunc(c.Txn.Then, func(op Op) bool { return !op.Delete })
	}
	return c.Method == MethodGrant
}

// Outcome is the decision of a hook. The zero value executes the call normally.
type Outcome struct {
	Apply Apply
	// Err replaces the result.
	Err error
}

// Apply decides if and when a write happens.
type Apply uint8

// The values of Apply.
const (
	ApplyNow Apply = iota
	ApplyNever
	// ApplyLater delays a transaction until ReleaseHeld, like a proposal that timed out and
	// that etcd commits later.
	ApplyLater
)

var errInjected = errors.New("injected fault")

// Drop returns the outcome of a lost request: nothing happens, and the error is
// ambiguous.
func Drop() Outcome { return Outcome{ApplyNever, ambiguous(errInjected)} }

// DropAnswer returns the outcome of a lost answer: the write happens, and the error is
// ambiguous.
func DropAnswer() Outcome { return Outcome{ApplyNow, ambiguous(errInjected)} }

// Hold returns the outcome of a delayed transaction: it happens at ReleaseHeld, and the
// error is ambiguous.
func Hold() Outcome { return Outcome{ApplyLater, ambiguous(errInjected)} }

// Refuse returns the outcome of a refused call: nothing happens, and err is the error.
func Refuse(err error) Outcome { return Outcome{ApplyNever, err} }

// Full returns the outcome of a call for which a full store has no space: nothing
// happens, and the error wraps ErrFull and ErrAmbiguous.
func Full() Outcome { return Outcome{ApplyNever, ambiguous(ErrFull)} }

// Fills returns the outcome of the call that fills the store: the call happens, and the
// error is that of Full.
func Fills() Outcome { return Outcome{ApplyNow, ambiguous(ErrFull)} }

// SetHook replaces the hook of the configuration. A nil hook removes it.
func (f *Fake) SetHook(hook func(ctx context.Context, call Call) Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Hook = hook
}

// enter starts a call and returns its outcome, which the hook or an ended context
// decides.
func (f *Fake) enter(ctx context.Context, call Call) Outcome {
	f.mu.Lock()
	hook := f.cfg.Hook
	f.mu.Unlock()
	var out Outcome
	if hook != nil {
		ctx, cancel := withDeadline(ctx)
		defer cancel()
		out = hook(ctx, call)
	}
	if err := ctx.Err(); err != nil && out.Err == nil {
		return Outcome{ApplyNever, ambiguous(err)}
	}
	return out
}

// ReleaseHeld applies the transactions that hooks have delayed, in order, if their compares are
// still true. It returns how many were applied.
func (f *Fake) ReleaseHeld() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	delayed := f.delayed
	f.delayed = nil
	applied := 0
	for _, txn := range delayed {
		if res, err := f.txn(txn); err == nil && res.Succeeded {
			applied++
		}
	}
	return applied
}

// Compact deletes the states before a revision: reads and watches at earlier revisions
// return ErrCompacted. History still returns all revisions.
func (f *Fake) Compact(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compacted = max(f.compacted, min(revision, f.revision))
	for key, vs := range f.keys {
		keep := 0
		for keep+1 < len(vs) && vs[keep+1].Mod <= f.compacted {
			keep++
		}
		f.keys[key] = vs[keep:]
	}
	f.wake()
}

// BreakWatches breaks the connection of every watch. Each watch continues at the same
// revision, but loses a pending progress request.
func (f *Fake) BreakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken++
	f.wake()
}

// SetAlarms replaces the active alarms.
func (f *Fake) SetAlarms(alarms ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alarms = alarms
}

// Revision returns the current revision of the store.
func (f *Fake) Revision() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// History returns all revisions, in order. The caller must not change it.
func (f *Fake) History() []Revision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.history)
}
