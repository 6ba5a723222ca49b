package match

import "slices"

// maxChanges is the minimum number of newest entries that a changeLog keeps.
const maxChanges = 1 << 12

// changeLog holds the newest entries of a numbered sequence.
type changeLog[T any] struct {
	// first is the number of the oldest entry in entries.
	first   uint64
	entries []T
}

// next returns the number of the next entry.
func (l *changeLog[T]) next() uint64 { return l.first + uint64(len(l.entries)) }

// add appends an entry, and returns its number.
func (l *changeLog[T]) add(entry T) uint64 {
	if len(l.entries) == 2*maxChanges {
		l.entries = slices.Delete(l.entries, 0, maxChanges)
		l.first += maxChanges
	}
	l.entries = append(l.entries, entry)
	return l.next() - 1
}

// covers reports whether the log still has all entries from a number on.
func (l *changeLog[T]) covers(number uint64) bool { return number >= l.first }

// since returns the entries from a number on, which the log must cover.
func (l *changeLog[T]) since(number uint64) []T { return l.entries[number-l.first:] }

// invalidate deletes all entries, and skips a number so that the log covers no number that
// was given out before.
func (l *changeLog[T]) invalidate() { l.first, l.entries = l.next()+1, l.entries[:0] }

// change records that an executor has more free capacity than before. With kind, it
// records that an executor was added, was removed or changed its kind. class and shape
// are those of the executor at that time.
type change struct {
	executor *Executor
	class    *Class
	shape    *Shape
	kind     bool
}

func (ix *Index) recordChange(e *Executor, kind bool) {
	number := ix.changes.add(change{e, e.class, e.shape, kind})
	if kind {
		ix.lastKindChange = number
	} else {
		e.lastFreed = number
	}
}

// move records that an executor with some free capacity became eligible, or is no longer
// eligible. When the free capacity of an executor changes, the log has one move out and
// one move in.
type move struct {
	layout     *layout
	class, sku int32
	point      []int64
	in         bool
}

// pointsSlab is the number of amounts that recordMove allocates at once. A grant of 100 workers
// records 200 moves. An allocation for each move takes a tenth of the time of the grant.
const pointsSlab = 1 << 12

func (ix *Index) recordMove(e *Executor, in bool) {
	if len(ix.points) < len(e.free) {
		ix.points = make([]int64, pointsSlab+len(e.free))
	}
	n := copy(ix.points, e.free)
	ix.moves.add(move{e.shape.layout, e.class.index, e.shape.sku.number, ix.points[:n:n], in})
	ix.points = ix.points[n:]
}
