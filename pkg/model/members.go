package model

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// Member is a worker of a gang and the place at which it runs.
type Member struct {
	ID WorkerID
	// Executor is the ID of the executor. Host is the name or the IP address at which the
	// other members reach its host.
	Executor, Host string
}

// IndexRange is a range of worker indexes.
type IndexRange struct{ First, Last int32 }

// Indexes has worker indexes in ascending order.
type Indexes []IndexRange

// With returns the indexes with one more, which must be above all others.
func (x Indexes) With(index int32) Indexes {
	if n := len(x); n > 0 && x[n-1].Last == index-1 {
		x[n-1].Last = index
		return x
	}
	return append(x, IndexRange{index, index})
}

// Unplaced has the worker indexes of a gang whose latest worker is not placed. Waiting: it is queued,
// or will be. Ended: it ran and has ended. GaveUp: Berth does not place it any more.
type Unplaced struct{ Waiting, Ended, GaveUp Indexes }

// IsEmpty reports whether there is no such index.
func (u Unplaced) IsEmpty() bool { return len(u.Waiting)+len(u.Ended)+len(u.GaveUp) == 0 }

// Members has the members of a gang. It must not be changed.
type Members struct {
	// Workers is the number of workers of the gang. It is higher than the length of List while
	// some of them are not placed.
	Workers int
	// List has the placed workers in order of index. It may also have workers that have ended.
	List []Member
	Unplaced
	// Cursor identifies Workers, List and Unplaced.
	Cursor string
}

// Version identifies Workers and List. So it does not change when a worker ends for good. Workers form
// another ring, say, when it changes.
func (m *Members) Version() string { return membersCursor(m.Workers, m.List, Unplaced{}) }

// NewMembers returns the members of a gang with a number of workers. The list must be in
// order of index.
func NewMembers(workers int, list []Member, unplaced Unplaced) *Members {
	return &Members{Workers: workers, List: list, Unplaced: unplaced, Cursor: membersCursor(workers, list, unplaced)}
}

// membersCursor returns a hash of the members. Clients keep cursors across updates of Berth.
// If the hash changes, each of them gets its list once more.
func membersCursor(workers int, list []Member, unplaced Unplaced) string {
	hash := sha256.New()
	text := strconv.AppendInt(nil, int64(workers), 10)
	for _, m := range list {
		text = strconv.AppendInt(append(text, '\n'), int64(m.ID.Index), 10)
		text = strconv.AppendInt(append(text, '.'), int64(m.ID.Number), 10)
		text = strconv.AppendQuote(append(text, ' '), m.Executor)
		text = strconv.AppendQuote(append(text, ' '), m.Host)
		hash.Write(text)
		text = text[:0]
	}
	for i, indexes := range []Indexes{unplaced.Waiting, unplaced.Ended, unplaced.GaveUp} {
		for _, r := range indexes {
			text = append(text, '\n', "weg"[i])
			text = strconv.AppendInt(append(text, ' '), int64(r.First), 10)
			text = strconv.AppendInt(append(text, '-'), int64(r.Last), 10)
		}
	}
	hash.Write(text)
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// Has reports whether a worker is a member.
func (m *Members) Has(id WorkerID) bool {
	_, found := slices.BinarySearchFunc(m.List, id, func(one Member, id WorkerID) int { return one.ID.Compare(id) })
	return found
}
