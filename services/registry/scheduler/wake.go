package scheduler

import (
	"maps"
	"time"

	"berth.dev/pkg/model"
)

// WakeCause is the reason why a head became due.
type WakeCause uint8

// The first two causes come after a delay. All others trigger a cycle at once.
const (
	// WakeInventory: executors joined or changed, or a lease shrank.
	WakeInventory WakeCause = iota
	// WakeTimer: Config.RetryEvery has passed.
	WakeTimer
	// WakeCancel: the head of a group was cancelled or flushed.
	WakeCancel
	// WakeSuccess: the head of a group was granted.
	WakeSuccess
	// WakeReady: the registry became ready, or a leader began its term.
	WakeReady
	// WakeChange: the head of a group is new, changed or expired.
	WakeChange

	wakeCauses
)

var wakeNames = [...]string{"inventory", "timer", "cancel", "success", "ready", "change"}

func (w WakeCause) String() string { return wakeNames[w] }

// Counts holds what a leader counts from its election on.
type Counts struct {
	// Cycles counts the scheduling cycles, Candidates their candidates by result.
	Cycles     uint64
	Candidates [model.Later + 1]uint64
	// WakeUps counts the cycles by cause. A cycle may count for several causes.
	WakeUps [wakeCauses]uint64
}

// InventoryChanged begins the debounce after a change that may have freed capacity.
func (s *Scheduler) InventoryChanged(now time.Time) {
	if s.wakeAt.IsZero() {
		s.wakeAt = now.Add(s.config.Debounce)
	}
}

// Pause stops the debounce and the timer.
func (s *Scheduler) Pause() { s.wakeAt, s.retryAt = time.Time{}, time.Time{} }

// Tick ends the debounce when its time has come, and drives the timer. The timer runs
// while a reservation is pending or the owner wants it to run. Tick reports whether the
// timer fired.
func (s *Scheduler) Tick(now time.Time, wanted bool) (fired bool) {
	if !s.wakeAt.IsZero() && !now.Before(s.wakeAt) {
		s.wakeAt = time.Time{}
		s.Wake(WakeInventory)
	}
	switch {
	case len(s.groups) == 0 && !wanted:
		s.retryAt = time.Time{}
	case s.retryAt.IsZero():
		s.retryAt = now.Add(s.config.RetryEvery)
	case !now.Before(s.retryAt):
		s.retryAt = now.Add(s.config.RetryEvery)
		s.Wake(WakeTimer)
		return true
	}
	return false
}

// Deadlines returns when Tick is due next, for the debounce and for the timer; zero
// means never.
func (s *Scheduler) Deadlines() (debounce, timer time.Time) { return s.wakeAt, s.retryAt }

// Wake makes the heads of all groups due.
func (s *Scheduler) Wake(cause WakeCause) {
	s.wakes++
	maps.Copy(s.due, s.groups)
	s.causes[cause] = s.causes[cause] || len(s.groups) > 0
}

// WakeEntry makes the head of an entry's group due, even if a cycle with it is in flight. It does
// nothing for an entry that is not pending.
func (s *Scheduler) WakeEntry(e *Entry) {
	if e.Group != nil {
		s.wakes++
		s.makeDue(e.Group)
	}
}

// makeDue makes the head of a group due, so that it triggers a cycle at once.
func (s *Scheduler) makeDue(g *Group) {
	if s.due[g.ID] == nil {
		s.due[g.ID] = g
		s.causes[s.Cause] = s.term != 0
	}
}
