package wire

import (
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func TestCheckSetMembers(t *testing.T) {
	request := func(change func(*berthv1.SetMembersRequest)) *berthv1.SetMembersRequest {
		r := &berthv1.SetMembersRequest{Job: "j", Stage: "s", Name: "n", Version: "v", Workers: 3,
			Members: []*berthv1.Member{{Index: 0, Number: 2, Executor: "e", Host: "h"}, {Index: 2, Number: 1, Executor: "e"}},
			Waiting: []*berthv1.IndexRange{{First: 1, Last: 1}}, Ended: []*berthv1.IndexRange{{First: 2, Last: 2}}}
		if change != nil {
			change(r)
		}
		return r
	}
	key, got, err := CheckSetMembers(request(nil))
	want := model.NewMembers(3, []model.Member{{ID: model.WorkerID{Index: 0, Number: 2}, Executor: "e", Host: "h"},
		{ID: model.WorkerID{Index: 2, Number: 1}, Executor: "e"}},
		model.Unplaced{Waiting: model.Indexes{{First: 1, Last: 1}}, Ended: model.Indexes{{First: 2, Last: 2}}})
	if err != nil || key != (model.Key{Job: "j", Stage: "s", Name: "n"}) || got == nil || got.Cursor != want.Cursor {
		t.Errorf("CheckSetMembers: %v, %+v, %v, want %+v", key, got, err, want)
	}
	empty := request(func(r *berthv1.SetMembersRequest) { r.Workers = 0 })
	if _, got, err := CheckSetMembers(empty); err != nil || got != nil {
		t.Errorf("a request with only a version: %+v, %v", got, err)
	}
	for field, change := range map[string]func(*berthv1.SetMembersRequest){
		"job":     func(r *berthv1.SetMembersRequest) { r.Job = "" },
		"version": func(r *berthv1.SetMembersRequest) { r.Version = strings.Repeat("v", 65) },
		"workers": func(r *berthv1.SetMembersRequest) { r.Workers = -1 },
		"members": func(r *berthv1.SetMembersRequest) { r.Members[1].Index = 0 },
		"waiting": func(r *berthv1.SetMembersRequest) { r.GaveUp = make([]*berthv1.IndexRange, MaxGang+1) },
	} {
		_, _, err := CheckSetMembers(request(change))
		if f := fault.Of(err); err == nil || len(f.Fields) != 1 || f.Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
