package restore

import (
	"time"

	"berth.dev/api/fault"
)

// zero is when revisions after a restore are counted from: one for every
// microsecond. etcd writes far less than a million times a second, so a history
// that began at such a revision stays below the moment that it has got to, and one
// that begins later is above all of it, whichever snapshot either came from.
var zero = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	// leastBump is the least that revisions are raised by on somebody's word.
	leastBump = 1_000_000_000
	// mostRevision is where a number in JSON ends to be exact, in the year 2305.
	mostRevision = 1<<53 - 1
	// staleAfter and skew bound how far a moment that is given may be in the past,
	// and, for the clocks of several hosts, in the future.
	staleAfter, skew = 24 * time.Hour, time.Minute
)

// Raise says at which revision the history goes on.
type Raise struct {
	// At is the moment of the restore, from which the revision is computed; it has to
	// be the same for all members of a cluster. Zero is now.
	At time.Time
	// By raises the revision of the snapshot by a number in place of that, unless it
	// is 0. It has to be more than any history since the backup has written.
	By uint64
}

// bump is by how much to raise the latest revision of a snapshot.
func (r Raise) bump(latest int64, members int, now time.Time) (uint64, error) {
	if r.By != 0 {
		return r.given(latest)
	}
	at := r.At
	if at.IsZero() {
		if at = now; members > 1 {
			return 0, fault.BadField(fault.ReasonInvalid, "--at",
				"is needed: all %d members have to go on at the same revision; give each of them --at %s", members, now.UTC().Format(time.RFC3339))
		}
	}
	if ago := now.Sub(at); ago > staleAfter || ago < -skew {
		return 0, fault.BadField(fault.ReasonInvalid, "--at",
			"has to be the moment of this restore, and is %s; the clock says %s", at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	begin := at.Sub(zero).Microseconds()
	if begin <= latest {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid,
			"the snapshot is of revision %d, and %s stands for %d: the clock was set back since, or revisions were raised further by hand; set the clock right, or give --bump-revision",
			latest, at.UTC().Format(time.RFC3339), begin)
	}
	if begin > mostRevision {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid, "%s stands for a revision above %d", at.UTC().Format(time.RFC3339), int64(mostRevision))
	}
	return uint64(begin - latest), nil
}

// given is the number that somebody gave.
func (r Raise) given(latest int64) (uint64, error) {
	switch {
	case !r.At.IsZero():
		return 0, fault.BadField(fault.ReasonInvalid, "--bump-revision", "is in place of --at: give one of them")
	case r.By < leastBump:
		return 0, fault.BadField(fault.ReasonInvalid, "--bump-revision", "has to be %d at least: agents refuse the orders of a past", leastBump)
	case r.By > uint64(mostRevision-latest):
		return 0, fault.BadField(fault.ReasonInvalid, "--bump-revision", "raises revision %d above %d", latest, int64(mostRevision))
	}
	return r.By, nil
}
