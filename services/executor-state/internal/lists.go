package internal

import (
	"context"
	"sync"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/services/executor-state/inventory"
)

// The first and the longest pause between attempts to send a list to the leader.
const (
	firstListPause = 100 * time.Millisecond
	maxListPause   = 5 * time.Second
)

// listedVolumes is the newest list of volumes of one stream, and which leader received it.
// A list is sent once to each leader of executor-state, because a new leader has no lists.
type listedVolumes struct {
	mu   sync.Mutex
	list *controlv1.VolumeList
	// received is the sequence of the last list that the leader of receivedTerm received.
	received, receivedTerm int64
	// leaderTerm is the newest term of executor-state that this replica has seen.
	leaderTerm int64
	// hasHome reports whether a volume has its home on the executor, as far as this replica
	// has seen. Otherwise an empty list says nothing.
	hasHome bool
	// running reports whether a goroutine sends lists.
	running bool
	// shared counts the volumes above freeItems of all agents. over is how many of them are
	// in list.
	shared *sharedItems
	over   int64
	closed bool
}

// set replaces the list, and reports whether its size is within the limits.
func (v *listedVolumes) set(list *controlv1.VolumeList) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || v.list.GetSequence() >= list.GetSequence() {
		return true
	}
	if !v.shared.resize(&v.over, len(list.GetIds())+len(list.GetGone())) {
		return false
	}
	v.list = list
	return true
}

// close drops the list when the stream has ended.
func (v *listedVolumes) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shared.resize(&v.over, 0)
	v.list, v.closed = nil, true
}

// observe updates what this replica has seen of the executor's volumes and of the leader.
func (v *listedVolumes) observe(c *inventory.Core, executor string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leaderTerm, v.hasHome = c.LeaderTerm(), c.HasVolumes(executor)
}

// start reports whether the caller must start the goroutine that sends lists.
func (v *listedVolumes) start() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running || !v.due() {
		return false
	}
	v.running = true
	return true
}

// next returns the list to send; nil if there is none, and the goroutine must end.
func (v *listedVolumes) next() *controlv1.VolumeList {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running = v.due(); !v.running {
		return nil
	}
	return v.list
}

func (v *listedVolumes) due() bool {
	if v.list == nil || v.received == v.list.GetSequence() && v.receivedTerm >= v.leaderTerm {
		return false
	}
	return len(v.list.GetIds())+len(v.list.GetGone()) > 0 || v.hasHome
}

// sent records that the leader of a term received a list. It reports whether a newer leader
// needs the list too.
func (v *listedVolumes) sent(sequence, term int64) (again bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.received, v.receivedTerm = sequence, term
	return term < v.leaderTerm
}

// sendLists starts to send the list of volumes to the leader if the leader needs it.
func (s *session) sendLists() {
	if s.volumes.start() {
		go s.guard(s.forwardVolumes)
	}
}

// forwardVolumes sends the list of volumes to the leader until the leader has the newest.
func (s *session) forwardVolumes() {
	if err := s.awaitAdmission(); err != nil {
		s.stream.end(err)
		return
	}
	pause := firstListPause
	for list := s.volumes.next(); list != nil; list = s.volumes.next() {
		var answer *controlv1.ReportVolumesAnswer
		err := s.h.lists.do(s.ctx, func() (err error) {
			ctx, cancel := context.WithTimeout(s.ctx, heartbeatTimeout)
			defer cancel()
			answer, err = s.h.leader.ReportVolumes(ctx, &controlv1.ReportVolumesRequest{Executor: s.id,
				Incarnation: s.incarnation, Volumes: list})
			return err
		})
		if failure := permanent(err); failure != nil {
			s.stream.end(failure)
			return
		}
		if err == nil {
			s.stream.answer(&controlv1.HeartbeatAnswer{Present: true, VolumesSequence: list.GetSequence()})
			if !s.volumes.sent(list.GetSequence(), answer.GetTerm()) {
				pause = firstListPause
				continue
			}
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return
		}
		pause = min(2*pause, maxListPause)
	}
}

func tooManyVolumes() error {
	return fault.New(fault.Exhausted, fault.ReasonOverloaded,
		"too many volumes are listed: at most %d of all agents above %d each", maxSharedItems, freeItems)
}
