package wire

import (
	"cmp"
	"strconv"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The limits of listing the members of a gang.
const (
	// MaxMembersWait is the maximum time that a call waits for a change, in seconds.
	MaxMembersWait = 60
	// MaxMembersPage is the maximum number of members in an answer. With the longest names, an
	// answer has about 5 MB.
	MaxMembersPage = 10_000
)

// CheckListMembers returns the reservation that a request names, and the index before the
// page, or -1 for the first page. The error names the first invalid field.
func CheckListMembers(r *berthv1.ListMembersRequest) (key model.Key, after int32, err error) {
	key = model.Key{Job: r.GetJob(), Stage: r.GetStage(), Name: cmp.Or(r.GetName(), model.MainName)}
	for _, one := range []struct{ field, name string }{{"job", key.Job}, {"stage", key.Stage}, {"name", key.Name}} {
		if !model.ValidName(one.name, 128) {
			return key, 0, fault.BadField(fault.ReasonBadName, one.field, "%q is not a name", one.name)
		}
	}
	if s := r.GetWaitSeconds(); s < 0 || s > MaxMembersWait {
		return key, 0, fault.BadField(fault.ReasonInvalid, "waitSeconds", "must be between 0 and %d, got %d",
			MaxMembersWait, s)
	}
	if n := r.GetPageSize(); n < 0 || n > MaxMembersPage {
		return key, 0, fault.BadField(fault.ReasonInvalid, "pageSize", "must be between 1 and %d, got %d", MaxMembersPage, n)
	}
	if r.GetPageToken() == "" {
		return key, -1, nil
	}
	index, err := strconv.ParseInt(r.GetPageToken(), 10, 32)
	if err != nil || index < 0 || index > model.MaxIndex {
		return key, 0, fault.BadField(fault.ReasonInvalid, "pageToken", "is not a token of this list")
	}
	return key, int32(index), nil
}

// IndexRanges converts worker indexes.
func IndexRanges(indexes model.Indexes) []*berthv1.IndexRange {
	var ranges []*berthv1.IndexRange
	for _, r := range indexes {
		ranges = append(ranges, &berthv1.IndexRange{First: r.First, Last: r.Last})
	}
	return ranges
}

// Indexes converts worker indexes of an answer. They may be invalid.
func Indexes(ranges []*berthv1.IndexRange) model.Indexes {
	var indexes model.Indexes
	for _, r := range ranges {
		indexes = append(indexes, model.IndexRange{First: r.GetFirst(), Last: r.GetLast()})
	}
	return indexes
}
