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

// Members has the members of a gang. It must not be changed.
type Members struct {
	// Workers is the number of workers of the gang. It is higher than the length of List while
	// some of them are not placed.
	Workers int
	// List has the placed workers in order of index.
	List []Member
	// Cursor identifies Workers and List.
	Cursor string
}

// NewMembers returns the members of a gang with a number of workers. The list must be in
// order of index.
func NewMembers(workers int, list []Member) *Members {
	return &Members{Workers: workers, List: list, Cursor: membersCursor(workers, list)}
}

// membersCursor returns a hash of the members. Clients keep cursors across updates of Berth.
// If the hash changes, each of them gets its list once more.
func membersCursor(workers int, list []Member) string {
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
	hash.Write(text)
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// Has reports whether a worker is a member.
func (m *Members) Has(id WorkerID) bool {
	_, found := slices.BinarySearchFunc(m.List, id, func(one Member, id WorkerID) int { return one.ID.Compare(id) })
	return found
}
