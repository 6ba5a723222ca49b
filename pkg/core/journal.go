package core

import "slices"

// Journal records the changes of a core's effects that are not durable yet. A core
// changes its memory when it decides an effect, and adds each change to the journal.
// Later the oldest effects become durable (Commit), or all of them are undone
// (Abandon). The zero value is ready to use.
type Journal[C any] struct {
	pending []pending[C] // oldest first
}

type pending[C any] struct {
	changes  []C
	outcomes []func(durable bool)
}

// Begin starts a new effect, which the next calls of Add and Outcome belong to.
func (j *Journal[C]) Begin() { j.pending = append(j.pending, pending[C]{}) }

// Add records a change of the newest effect. There must be a pending effect.
func (j *Journal[C]) Add(change C) {
	newest := &j.pending[len(j.pending)-1]
	newest.changes = append(newest.changes, change)
}

// Outcome calls f once the outcome of everything decided so far is known: with true
// when the newest effect is durable, with false when it is abandoned. If no effect is
// pending, it calls f(true) at once.
func (j *Journal[C]) Outcome(f func(durable bool)) {
	if len(j.pending) == 0 {
		f(true)
		return
	}
	newest := &j.pending[len(j.pending)-1]
	newest.outcomes = append(newest.outcomes, f)
}

// Len returns the number of pending effects.
func (j *Journal[C]) Len() int { return len(j.pending) }

// Commit makes the oldest n effects durable.
func (j *Journal[C]) Commit(n int) {
	durable := j.pending[:n]
	j.pending = j.pending[n:]
	report(durable, true)
}

// Abandon calls undo for every change, the newest first, and then reports the outcome.
func (j *Journal[C]) Abandon(undo func(C)) {
	abandoned := j.pending
	j.pending = nil
	for _, effect := range slices.Backward(abandoned) {
		for _, change := range slices.Backward(effect.changes) {
			undo(change)
		}
	}
	report(abandoned, false)
}

func report[C any](effects []pending[C], durable bool) {
	for _, effect := range effects {
		for _, f := range effect.outcomes {
			f(durable)
		}
	}
}
