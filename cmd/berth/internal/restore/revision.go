package restore

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/store"
)

// zero is the moment of revision 0: a restored history continues at the number of
// microseconds since zero. etcd writes far less than a million revisions per second. So
// the revisions of a history stay below the revision of the current moment, and a later
// restore of any snapshot begins above the whole history.
var zero = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	// maxRevision is the largest number that is exact in JSON, reached in the year 2305.
	maxRevision = 1<<53 - 1
	// staleAfter bounds how far --at may be in the past. skew bounds how far --at may be
	// in the future, which happens if the clocks of two hosts differ.
	staleAfter, skew = 24 * time.Hour, time.Minute
)

// Raise determines the revision at which the history continues.
type Raise struct {
	// At is the moment of the restore, which determines the revision. It must be the same
	// for all members of a cluster. The zero time means now.
	At time.Time
	// By, unless it is 0, is the number by which the revision of the snapshot is raised
	// instead. It must be more than the number of revisions that any history has written
	// since the backup.
	By uint64
}

// bump returns the number by which to raise the latest revision of a snapshot.
func (r Raise) bump(latest int64, members int, now time.Time) (uint64, error) {
	switch {
	case r.By == 0:
	case !r.At.IsZero():
		return 0, fault.BadField(fault.ReasonInvalid, "--bump-revision", "cannot be used with --at")
	case r.By < store.MinRestoreBump:
		return 0, fault.BadField(fault.ReasonInvalid, "--bump-revision",
			"must be at least %d, because agents reject earlier terms", store.MinRestoreBump)
	case r.By > uint64(maxRevision-latest):
		return 0, fault.BadField(fault.ReasonInvalid, "--bump-revision", "raises revision %d above %d", latest,
			int64(maxRevision))
	default:
		return r.By, nil
	}
	at := r.At
	if at.IsZero() {
		if at = now; members > 1 {
			return 0, fault.BadField(fault.ReasonInvalid, "--at",
				"is required, because all %d members must continue at the same revision; give each of them --at %s", members,
				now.UTC().Format(time.RFC3339))
		}
	}
	if ago := now.Sub(at); ago > staleAfter || ago < -skew {
		return 0, fault.BadField(fault.ReasonInvalid, "--at",
			"must be the moment of this restore, got %s at %s", at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	begin := at.Sub(zero).Microseconds()
	if begin <= latest {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid,
			"the snapshot has revision %d, but %s is only revision %d: the clock was set back, or revisions were raised by --bump-revision; set the clock or give --bump-revision",
			latest, at.UTC().Format(time.RFC3339), begin)
	}
	if begin > maxRevision {
		return 0, fault.New(fault.Precondition, fault.ReasonInvalid, "%s is a revision above %d",
			at.UTC().Format(time.RFC3339), int64(maxRevision))
	}
	return uint64(begin - latest), nil
}
