package core

import "slices"

// Journal records the changes of a core's effects that are not durable yet. A core
// changes its memory when it decides an effect, and adds each change to the journal.
// Later the oldest effects become durable (Commit), or all of them are undone (Abandon).
// The zero value is ready to use. The functions that the journal calls must not use the
// journal.
type Journal[C any] struct {
	begun, durable int // counts of effects
	changes        []numbered[C]
	outcomes       []numbered[func(durable bool)]
}

// numbered is a value that belongs to an effect. The first effect has the number 1.
type numbered[T any] struct {
	effect int
	value  T
}

// Begin starts a new effect. The next calls of Add and Outcome belong to this effect.
func (j *Journal[C]) Begin() { j.begun++ }

// Add records a change of the newest effect.
func (j *Journal[C]) Add(change C) { j.changes = append(j.changes, numbered[C]{j.begun, change}) }

// Outcome calls f once when the outcome of all effects so far is known. It calls f(true)
// when the newest effect becomes durable, and f(false) when the newest effect is
// abandoned. If no effect is pending, it calls f(true) at once.
func (j *Journal[C]) Outcome(f func(durable bool)) {
	if j.Len() == 0 {
		f(true)
		return
	}
	j.outcomes = append(j.outcomes, numbered[func(bool)]{j.begun, f})
}

// Len returns the number of pending effects.
func (j *Journal[C]) Len() int { return j.begun - j.durable }

// Commit records that the oldest n effects are durable, and calls the functions of
// Outcome that belong to them.
func (j *Journal[C]) Commit(n int) {
	j.durable += n
	j.changes = slices.DeleteFunc(j.changes, func(c numbered[C]) bool { return c.effect <= j.durable })
	j.outcomes = slices.DeleteFunc(j.outcomes, func(o numbered[func(bool)]) bool {
		if o.effect <= j.durable {
			o.value(true)
		}
		return o.effect <= j.durable
	})
}

// Abandon calls undo for every change that is not durable, the newest first. Then it
// calls f(false) for the pending functions of Outcome.
func (j *Journal[C]) Abandon(undo func(C)) {
	for _, c := range slices.Backward(j.changes) {
		undo(c.value)
	}
	for _, o := range j.outcomes {
		o.value(false)
	}
	*j = Journal[C]{}
}
