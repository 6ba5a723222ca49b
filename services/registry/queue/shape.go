package queue

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// sameShape compares two bodies but for workers, priority and labels.
func sameShape(a, b model.Spec) bool {
	return a.TargetSize == b.TargetSize && a.MaxAttempts == b.MaxAttempts && a.QueueTimeout == b.QueueTimeout &&
		sameTask(a.Task, b.Task) && sameConstraints(a.Constraints, b.Constraints)
}

func sameTask(a, b model.Task) bool {
	return a.Command == b.Command && a.StopGrace == b.StopGrace && slices.Equal(a.Args, b.Args) &&
		maps.Equal(a.Env, b.Env) && bytes.Equal(a.Payload, b.Payload)
}

// sameConstraints compares like matching does: without regard to case, and to
// the order of what is a set.
func sameConstraints(a, b constraint.Constraints) bool {
	return a.Canonical() == b.Canonical() && a.SameShape == b.SameShape && a.Spread == b.Spread && a.Pack == b.Pack &&
		slices.Equal(slices.Sorted(slices.Values(a.Avoid)), slices.Sorted(slices.Values(b.Avoid)))
}

// asked says whether the workers of an upsert are those that were asked for
// before: by the newest living version, or by all of them together, as when
// the newest only adds to workers that run.
func (l living) asked(u Upsert) bool {
	var all model.Seats
	for _, v := range l.started {
		all = all.Raise(v.r.Seats)
	}
	if l.queued != nil {
		all = all.Raise(l.queued.r.Seats)
	}
	return asksFor(u, l.newest.r.Seats) || asksFor(u, all)
}

func asksFor(u Upsert, seats model.Seats) bool {
	if u.Count == 0 {
		return seats.Equal(model.SeatsOf(u.Workers))
	}
	return seats[0].First == 0 && seats[len(seats)-1].Last == u.Count-1 && seats.Len() == int(u.Count)
}

// seats finds what an upsert has to queue: what it asks for and does not live.
// With a count the queued numbers stay, and all else takes its next unused
// number; an explicit number is one that is queued, or higher than any used.
func (c *Core) seats(u Upsert, l living) (model.Seats, error) {
	live := l.live()
	var queued, used model.Seats
	if l.queued != nil {
		queued = l.queued.r.Seats
	}
	if stage := c.stages[stageKey(u.Key)]; stage != nil {
		used = stage.Numbers
	}
	var list []model.Seat
	for index := range u.Count {
		if live.has(index) {
			continue
		}
		number, ok := queued.Number(index)
		if !ok {
			highest, _ := used.Number(index)
			number = highest + 1
		}
		list = append(list, model.Seat{Index: index, Number: number})
	}
	for i, seat := range u.Workers {
		if live.is(seat) {
			continue
		}
		if highest, before := used.Number(seat.Index); before && seat.Number <= highest && !queued.Has(seat) {
			err := fault.BadField(fault.ReasonWorkerIDUsed, fmt.Sprintf("workers[%d].number", i),
				"%d is used: the highest number of seat %d is %d", seat.Number, seat.Index, highest)
			err.Kind = fault.Conflict
			return nil, err
		}
		list = append(list, seat)
	}
	return model.SeatsOf(list), nil
}

// live are the workers that have been handed out and have not ended.
type live []liveSeats

type liveSeats struct {
	seats model.Seats
	ended map[model.Seat]bool
}

func (l living) live() live {
	var all live
	for _, v := range l.started {
		if v.header != nil && v.header.Ended {
			continue
		}
		seats := liveSeats{v.r.Seats, map[model.Seat]bool{}}
		for _, chunk := range v.tasks {
			for _, w := range chunk.Workers {
				if w.State.Terminal() {
					seats.ended[w.Seat] = true
				}
			}
		}
		all = append(all, seats)
	}
	return all
}

// has says whether any number of the seat lives.
func (l live) has(index int32) bool {
	for _, s := range l {
		if number, ok := s.seats.Number(index); ok && !s.ended[model.Seat{Index: index, Number: number}] {
			return true
		}
	}
	return false
}

// is says whether that very worker lives.
func (l live) is(seat model.Seat) bool {
	for _, s := range l {
		if s.seats.Has(seat) && !s.ended[seat] {
			return true
		}
	}
	return false
}
