package access

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"berth.dev/api/fault"
)

// The limits of the entries in memory.
const (
	maxRecent      = 1000
	maxRecentBytes = 2 << 20
	// entryBytes is the memory of an entry without its texts: the structure is below 200 bytes,
	// and a slice may have free capacity for as many entries.
	entryBytes = 400
)

// recent has the newest entries of an audit log.
type recent struct {
	// id is in the tokens of pages: the numbers of another process are others.
	id      string
	entries []Entry // the oldest first
	oldest  int64   // the number of the first entry; each entry has the next number
	bytes   int
	since   time.Time
}

func newRecent(start time.Time) *recent {
	return &recent{id: rand.Text(), oldest: 1, since: start.UTC()}
}

// add adds the newest entry, and deletes the oldest ones beyond the limits.
func (r *recent) add(e Entry) {
	r.entries = append(r.entries, e)
	r.bytes += e.size()
	for len(r.entries) > maxRecent || r.bytes > maxRecentBytes {
		r.bytes -= r.entries[0].size()
		r.entries[0] = Entry{} // the slice still has it
		r.entries, r.oldest = r.entries[1:], r.oldest+1
		r.since = r.entries[0].Time
	}
}

// size returns the memory of the entry in bytes.
func (e Entry) size() int {
	return entryBytes + len(e.Caller) + len(e.Peer) + len(e.Listener) + len(e.Method) + len(e.Object) +
		len(e.RequestID) + len(e.Outcome) + len(e.Reason) + len(e.Message)
}

// AuditPage is a page of the entries in memory.
type AuditPage struct {
	// Entries has the entries, the newest first.
	Entries []Entry
	// Next is the token of the next page; empty on the last page.
	Next string
	// Since is the time since which every entry is in memory.
	Since time.Time
}

// Page returns at most size entries that are in memory: the newest ones, or those that are
// older than the page with the token. The token of a page names its oldest entry, so new
// entries change nothing on the pages that follow.
func (a *Audit) Page(token string, size int) (AuditPage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.recent
	end := r.oldest + int64(len(r.entries)) // the number after the newest entry of the page
	if token != "" {
		id, text, _ := strings.Cut(token, "-")
		before, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id != r.id || before > end || before < 1 {
			return AuditPage{}, fault.BadField(fault.ReasonInvalid, "pageToken",
				"must be the nextPageToken of an earlier page of the same gateway, which has not been restarted")
		}
		end = before
	}
	begin := max(r.oldest, end-int64(size))
	page := AuditPage{Since: r.since}
	for number := end - 1; number >= begin; number-- {
		page.Entries = append(page.Entries, r.entries[number-r.oldest])
	}
	if begin > r.oldest && begin < end {
		page.Next = r.id + "-" + strconv.FormatInt(begin, 10)
	}
	return page, nil
}
