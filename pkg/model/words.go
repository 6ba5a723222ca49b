package model

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Key is the name of a reservation. All versions of the reservation have the same key.
type Key struct {
	Job, Stage, Name string
}

// MainName is the default name of a reservation.
const MainName = "main"

func (k Key) String() string { return k.Job + "/" + k.Stage + "/" + k.Name }

// Compare orders keys by job, stage and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Job, o.Job), cmp.Compare(k.Stage, o.Stage), cmp.Compare(k.Name, o.Name))
}

// WorkerID identifies a worker of a stage by its index and its number. The number rises
// each time the index is used again.
type WorkerID struct {
	Index, Number int32
}

func (w WorkerID) String() string { return fmt.Sprintf("%d.%d", w.Index, w.Number) }

// Compare orders worker IDs by index, then number.
func (w WorkerID) Compare(o WorkerID) int {
	return cmp.Or(cmp.Compare(w.Index, o.Index), cmp.Compare(w.Number, o.Number))
}

// NumberRange contains the worker numbers First to Last, both included.
type NumberRange struct {
	First, Last int32
}

// Worker is the name of a worker: its identity without the epoch. The same name may be
// used again months later, at another epoch.
type Worker struct {
	Job, Stage string
	ID         WorkerID
}

func (w Worker) String() string {
	return fmt.Sprintf("%s/%s/%d.%d", w.Job, w.Stage, w.ID.Index, w.ID.Number)
}

// Run contains the workers with the indexes First to Last, both included. All of them
// have the same number.
type Run struct {
	First, Last, Number int32
}

// WorkerSet is a set of workers of a stage, as runs in order of index without overlaps.
// It contains at most one number for each index. The value must not be changed.
type WorkerSet []Run

// WorkerSetOf returns the set of the given workers, which may be in any order. It drops a
// second worker with the same index, so the caller must refuse duplicates before the
// call.
func WorkerSetOf(list []WorkerID) WorkerSet {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, WorkerID.Compare)
	var runs WorkerSet
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

// Len returns the number of workers.
func (s WorkerSet) Len() int {
	n := 0
	for _, r := range s {
		n += int(r.Last-r.First) + 1
	}
	return n
}

// Check returns an error unless s is a valid set: its runs are in order of index, indexes
// and numbers are within their limits, and the set has at most the given number of
// workers. The caller must check a set from outside before it calls any other method.
func (s WorkerSet) Check(most int) error {
	left, next := int64(most), int64(0)
	for i, r := range s {
		switch {
		case int64(r.First) < next || r.Last < r.First || r.Last > MaxIndex:
			return fmt.Errorf("run %d holds indexes %d to %d, want them to rise from %d to at most %d", i, r.First, r.Last,
				next, MaxIndex)
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

// All returns the workers in order of index.
func (s WorkerSet) All() iter.Seq[WorkerID] {
	return func(yield func(WorkerID) bool) {
		for _, r := range s {
			for i := r.First; ; i++ {
				if !yield(WorkerID{i, r.Number}) {
					return
				}
				if i == r.Last {
					break
				}
			}
		}
	}
}

// List returns the workers in order of index.
func (s WorkerSet) List() []WorkerID { return slices.Collect(s.All()) }

// Number returns the number of the worker with that index. It returns false if the set
// has no such worker.
func (s WorkerSet) Number(index int32) (number int32, ok bool) {
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

// Has reports whether the worker, including its number, is in the set.
func (s WorkerSet) Has(id WorkerID) bool {
	number, ok := s.Number(id.Index)
	return ok && number == id.Number
}

// Equal reports whether two sets are equal.
func (s WorkerSet) Equal(o WorkerSet) bool { return slices.Equal(s, o) }

// SubsetOf reports whether every worker of s is in o.
func (s WorkerSet) SubsetOf(o WorkerSet) bool {
	for id := range s.All() {
		if !o.Has(id) {
			return false
		}
	}
	return true
}

// Minus returns the workers of s whose indexes are not in o. It iterates over runs, like
// Raise.
func (s WorkerSet) Minus(o WorkerSet) WorkerSet {
	if len(o) == 0 {
		return s
	}
	var rest WorkerSet
	for _, r := range s {
		for len(o) > 0 && o[0].Last < r.First {
			o = o[1:]
		}
		for _, gap := range o {
			if gap.First > r.Last {
				break
			}
			if gap.First > r.First {
				rest = append(rest, Run{r.First, gap.First - 1, r.Number})
			}
			r.First = gap.Last + 1
		}
		if r.First <= r.Last {
			rest = append(rest, r)
		}
	}
	return rest
}

// Below returns the workers of s whose index has a higher number in o. It iterates over runs,
// like Raise, and skips the runs of o before the first one of s.
func (s WorkerSet) Below(o WorkerSet) WorkerSet {
	var below WorkerSet
	for _, r := range s {
		from, _ := slices.BinarySearchFunc(o, r.First, func(r Run, index int32) int { return cmp.Compare(r.Last, index) })
		for o = o[from:]; len(o) > 0 && o[0].First <= r.Last; o = o[1:] {
			if part := (Run{max(r.First, o[0].First), min(r.Last, o[0].Last), r.Number}); o[0].Number > r.Number {
				if n := len(below) - 1; n >= 0 && below[n].Number == part.Number && below[n].Last == part.First-1 {
					below[n].Last = part.Last
				} else {
					below = append(below, part)
				}
			}
			if o[0].Last >= r.Last {
				break // the next run of s may begin in it
			}
		}
	}
	return below
}

// Raise returns the union of s and o. For an index in both sets it returns the higher
// number. It iterates over runs instead of workers, because there may be very many
// workers.
func (s WorkerSet) Raise(o WorkerSet) WorkerSet {
	var raised WorkerSet
	for next := int32(0); len(s) > 0 || len(o) > 0; {
		part := Run{First: math.MaxInt32, Last: math.MaxInt32}
		for _, set := range []WorkerSet{s, o} {
			if len(set) > 0 {
				part.First = min(part.First, max(next, set[0].First))
			}
		}
		for _, set := range []WorkerSet{s, o} {
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
