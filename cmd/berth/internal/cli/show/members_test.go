package show

import (
	"reflect"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

func TestMembers(t *testing.T) {
	member := func(index int32) *berthv1.Member {
		return &berthv1.Member{Index: index, Number: 1, Executor: "e", Host: "h"}
	}
	table := Members("job", "stage")(&berthv1.ListMembersAnswer{Workers: 9,
		Members: []*berthv1.Member{member(0), member(2), member(3)},
		Waiting: []*berthv1.IndexRange{{First: 5, Last: 8}}, Ended: []*berthv1.IndexRange{{First: 3, Last: 3}},
		GaveUp: []*berthv1.IndexRange{{First: 1, Last: 1}, {First: 4, Last: 4}},
	}, time.Time{}, false)
	want := [][]string{
		{"job/stage/0.1", "e", "h", "placed"}, {"job/stage/2.1", "e", "h", "placed"}, {"job/stage/3.1", "e", "h", "ended"},
		{"job/stage/1", "", "", "gave up"}, {"job/stage/4", "", "", "gave up"}, {"job/stage/5-8", "", "", "waiting"},
	}
	if !reflect.DeepEqual(table.rows, want) {
		t.Errorf("rows %q, want %q", table.rows, want)
	}
}
