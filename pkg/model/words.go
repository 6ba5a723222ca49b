package model

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Key names a reservation: all its versions share it.
type Key struct {
	Job, Stage, Name string
}

// MainName is the name of a reservation that was given none.
const MainName = "main"

func (k Key) String() string { return k.Job + "/" + k.Stage + "/" + k.Name }

// Compare orders keys by job, stage and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Job, o.Job), cmp.Compare(k.Stage, o.Stage), cmp.Compare(k.Name, o.Name))
}

// Seat is a place in a stage and the number of the worker that takes it. The
// number rises each time the seat is taken again.
type Seat struct {
	Index, Number int32
}

func (s Seat) String() string { return fmt.Sprintf("%d.%d", s.Index, s.Number) }

// Compare orders seats by index, then number.
func (s Seat) Compare(o Seat) int {
	return cmp.Or(cmp.Compare(s.Index, o.Index), cmp.Compare(s.Number, o.Number))
}

// Worker is the identity of a worker but for the epoch: a name may be used
// again months later, at another epoch.
type Worker struct {
	Job, Stage string
	Seat       Seat
}

func (w Worker) String() string {
	return fmt.Sprintf("%s/%s/%d.%d", w.Job, w.Stage, w.Seat.Index, w.Seat.Number)
}

// Run is the seats First to Last, both included, all with one number.
type Run struct {
	First, Last, Number int32
}

// Seats is a set of seats as runs in order of index, without overlaps. At most
// one number of each index is in it. The value is immutable.
type Seats []Run

// SeatsOf makes the set of the given seats, in any order. A second seat of one
// index is dropped: refuse duplicates first.
func SeatsOf(list []Seat) Seats {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, Seat.Compare)
	var runs Seats
	for _, s := range sorted {
		if n := len(runs); n > 0 {
			last := &runs[n-1]
			if s.Index == last.Last {
				continue
			}
			if s.Index == last.Last+1 && s.Number == last.Number {
				last.Last = s.Index
				continue
			}
		}
		runs = append(runs, Run{s.Index, s.Index, s.Number})
	}
	return runs
}

// Len counts the seats.
func (s Seats) Len() int {
	n := 0
	for _, r := range s {
		n += int(r.Last-r.First) + 1
	}
	return n
}

// Check returns an error unless s is what SeatsOf can make: runs in order of index,
// within the bounds of indexes and numbers, of at most a number of workers. Seats
// from outside are checked before anything counts or walks them.
func (s Seats) Check(most int) error {
	left, next := int64(most), int64(0)
	for i, r := range s {
		switch {
		case int64(r.First) < next || r.Last < r.First || r.Last > MaxIndex:
			return fmt.Errorf("run %d holds indexes %d to %d, want them to rise from %d to at most %d", i, r.First, r.Last, next, MaxIndex)
		case r.Number < 1 || r.Number > MaxNumber:
			return fmt.Errorf("run %d has number %d, want 1 to %d", i, r.Number, MaxNumber)
		}
		next = int64(r.Last) + 1
		if left -= next - int64(r.First); left < 0 {
			return fmt.Errorf("runs 0 to %d hold more than %d workers", i, most)
		}
	}
	return nil
}

// All gives the seats in order of index.
func (s Seats) All() iter.Seq[Seat] {
	return func(yield func(Seat) bool) {
		for _, r := range s {
			for i := r.First; ; i++ {
				if !yield(Seat{i, r.Number}) {
					return
				}
				if i == r.Last {
					break
				}
			}
		}
	}
}

// List gives the seats in order of index.
func (s Seats) List() []Seat { return slices.Collect(s.All()) }

// Number answers the number of the seat with that index.
func (s Seats) Number(index int32) (number int32, ok bool) {
	i, found := slices.BinarySearchFunc(s, index, func(r Run, index int32) int {
		switch {
		case r.Last < index:
			return -1
		case r.First > index:
			return 1
		}
		return 0
	})
	if !found {
		return 0, false
	}
	return s[i].Number, true
}

// Has says whether that very seat, number included, is in the set.
func (s Seats) Has(seat Seat) bool {
	number, ok := s.Number(seat.Index)
	return ok && number == seat.Number
}

// Equal compares two sets.
func (s Seats) Equal(o Seats) bool { return slices.Equal(s, o) }

// SubsetOf says whether every seat of s is in o.
func (s Seats) SubsetOf(o Seats) bool {
	for seat := range s.All() {
		if !o.Has(seat) {
			return false
		}
	}
	return true
}

// Raise answers s with the numbers of o's seats in place of lower ones. It walks
// runs and not seats, of which there may be very many.
func (s Seats) Raise(o Seats) Seats {
	var raised Seats
	for next := int32(0); len(s) > 0 || len(o) > 0; {
		part := Run{First: math.MaxInt32, Last: math.MaxInt32}
		for _, set := range []Seats{s, o} {
			if len(set) > 0 {
				part.First = min(part.First, max(next, set[0].First))
			}
		}
		for _, set := range []Seats{s, o} {
			switch {
			case len(set) == 0:
			case set[0].First > part.First:
				part.Last = min(part.Last, set[0].First-1)
			default:
				part.Last, part.Number = min(part.Last, set[0].Last), max(part.Number, set[0].Number)
			}
		}
		if n := len(raised) - 1; n >= 0 && raised[n].Number == part.Number && raised[n].Last == part.First-1 {
			raised[n].Last = part.Last
		} else {
			raised = append(raised, part)
		}
		next = part.Last + 1
		if len(s) > 0 && s[0].Last < next {
			s = s[1:]
		}
		if len(o) > 0 && o[0].Last < next {
			o = o[1:]
		}
	}
	return raised
}
