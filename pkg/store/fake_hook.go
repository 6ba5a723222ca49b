package store

import (
	"context"
	"errors"
	"slices"
)

// Method names a call of a Store in a [Call].
type Method string

// The methods a hook hears of.
const (
	MethodTxn       Method = "Txn"
	MethodGet       Method = "Get"
	MethodPage      Method = "Page"
	MethodGrant     Method = "Grant"
	MethodKeepAlive Method = "KeepAlive"
	MethodRevoke    Method = "Revoke"
	MethodAlarms    Method = "Alarms"
)

// Call is what a hook of a Fake is asked about.
type Call struct {
	Method Method
	// Txn is set for MethodTxn, Key for reads, Lease for KeepAlive and Revoke.
	Txn   *Txn
	Key   string
	Lease int64
}

// Adds says whether a call needs room, so that an etcd which is full refuses it: it
// grants an etcd lease, or puts something. Deletes and renewals need none.
func (c Call) Adds() bool {
	if c.Method == MethodTxn {
		return slices.ContainsFunc(c.Txn.Then, func(op Op) bool { return !op.Delete })
	}
	return c.Method == MethodGrant
}

// Outcome is what a hook makes of a call; the zero value lets it through.
type Outcome struct {
	Apply Apply
	// Err is answered instead of the result.
	Err error
}

// Apply is whether a write happens.
type Apply uint8

// Whether a write happens.
const (
	ApplyNow Apply = iota
	ApplyNever
	// ApplyLater keeps a transaction until ReleaseHeld: the proposal that was
	// timed out and is committed in the end.
	ApplyLater
)

var errInjected = errors.New("injected fault")

// Drop loses the request: nothing happens, and the caller cannot know.
func Drop() Outcome { return Outcome{ApplyNever, ambiguous(errInjected)} }

// DropAnswer loses the answer: the write happens, and the caller cannot know.
func DropAnswer() Outcome { return Outcome{ApplyNow, ambiguous(errInjected)} }

// Hold keeps a transaction until ReleaseHeld; the caller cannot know.
func Hold() Outcome { return Outcome{ApplyLater, ambiguous(errInjected)} }

// Refuse answers a definite error.
func Refuse(err error) Outcome { return Outcome{ApplyNever, err} }

// Full is what a store answers that has reached its quota: nothing happens. It is
// for calls that add something.
func Full() Outcome { return Outcome{ApplyNever, ambiguous(ErrFull)} }

// Fills is the answer to the call by which a store reaches its quota: the same, and
// it happens.
func Fills() Outcome { return Outcome{ApplyNow, ambiguous(ErrFull)} }

// SetHook replaces the hook of the configuration; nil removes it.
func (f *Fake) SetHook(hook func(ctx context.Context, call Call) Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Hook = hook
}

// enter begins a call: a context that is over, or the hook, decide its fate.
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

// ReleaseHeld applies the transactions that hooks held back, in order, as far as
// their compares still hold, and answers how many did.
func (f *Fake) ReleaseHeld() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.held
	f.held = nil
	applied := 0
	for _, txn := range held {
		if res, err := f.txn(txn); err == nil && res.Succeeded {
			applied++
		}
	}
	return applied
}

// Compact forgets what was before a revision: reads and watches from before it
// fail with ErrCompacted. History keeps everything.
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

// BreakWatches cuts the connection of every watch; each resumes where it was.
func (f *Fake) BreakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken++
	f.wake()
}

// SetAlarms replaces the alarms that are up.
func (f *Fake) SetAlarms(alarms ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alarms = alarms
}

// Revision is the store's revision now.
func (f *Fake) Revision() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// History is every revision there ever was, in order; not to be changed.
func (f *Fake) History() []Revision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.history)
}
