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
	// MaxGang is the maximum number of workers of a gang whose workers get its members.
	MaxGang = 8192
)

// CheckListMembers returns the reservation that a request names, and the index before the
// page, or -1 for the first page. The error names the first invalid field.
func CheckListMembers(r *berthv1.ListMembersRequest) (key model.Key, after int32, err error) {
	if key, err = gangKey(r); err != nil {
		return key, 0, err
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

// gangKey returns the reservation that a request about a gang names.
func gangKey(r interface {
	GetJob() string
	GetStage() string
	GetName() string
}) (model.Key, error) {
	key := model.Key{Job: r.GetJob(), Stage: r.GetStage(), Name: cmp.Or(r.GetName(), model.MainName)}
	for _, one := range []struct{ field, name string }{{"job", key.Job}, {"stage", key.Stage}, {"name", key.Name}} {
		if !model.ValidName(one.name, 128) {
			return key, fault.BadField(fault.ReasonBadName, one.field, "%q is not a name", one.name)
		}
	}
	return key, nil
}

// CheckSetMembers returns the reservation that a request names, and the members of its gang, or nil if
// the request has only their version. The error names the first invalid field.
func CheckSetMembers(r *berthv1.SetMembersRequest) (key model.Key, members *model.Members, err error) {
	if key, err = gangKey(r); err != nil {
		return key, nil, err
	}
	if n := len(r.GetVersion()); n == 0 || n > 64 {
		return key, nil, fault.BadField(fault.ReasonInvalid, "version", "must have between 1 and 64 characters, has %d", n)
	}
	if n := r.GetWorkers(); n < 0 || n > model.MaxWorkers {
		return key, nil, fault.BadField(fault.ReasonInvalid, "workers", "must be between 0 and %d, got %d",
			model.MaxWorkers, n)
	} else if n == 0 {
		return key, nil, nil
	}
	if n := len(r.GetMembers()); n > MaxGang {
		return key, nil, fault.BadField(fault.ReasonInvalid, "members", "must have at most %d members, has %d", MaxGang, n)
	}
	list := make([]model.Member, len(r.GetMembers()))
	for i, m := range r.GetMembers() {
		list[i] = model.Member{ID: model.WorkerID{Index: m.GetIndex(), Number: m.GetNumber()}, Executor: m.GetExecutor(),
			Host: m.GetHost()}
		switch {
		case m.GetIndex() < 0 || i > 0 && list[i].ID.Index <= list[i-1].ID.Index:
			return key, nil, fault.BadField(fault.ReasonInvalid, "members", "must be in order of index, each once")
		case len(m.GetExecutor()) > maxWorkerName || len(m.GetHost()) > maxWorkerHost:
			return key, nil, fault.BadField(fault.ReasonInvalid, "members", "the executor or the host of index %d is too long", m.GetIndex())
		}
	}
	unplaced := model.Unplaced{
		Waiting: Indexes(r.GetWaiting()), Ended: Indexes(r.GetEnded()), GaveUp: Indexes(r.GetGaveUp()),
	}
	if n := max(len(unplaced.Waiting), len(unplaced.Ended), len(unplaced.GaveUp)); n > MaxGang {
		return key, nil, fault.BadField(fault.ReasonInvalid, "waiting", "must have at most %d ranges, like ended and gaveUp", MaxGang)
	}
	return key, model.NewMembers(int(r.GetWorkers()), list, unplaced), nil
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
