package queue

import (
	"slices"
	"testing"

	"berth.dev/pkg/model"
)

// A round continues each version that it ends, except for one that the same transaction creates: that
// version has no epoch yet. Of too many, the first and the latest stay.
func TestEpochsThatARoundContinues(t *testing.T) {
	of := func(epoch int64, continues ...int64) *version {
		return &version{r: &model.Reservation{Epoch: epoch, Continues: continues}}
	}
	if got := continuedEpochs([]*version{of(9, 2, 5), of(0), of(7, 2)}); !slices.Equal(got, []int64{2, 5, 7, 9}) {
		t.Errorf("a requeue without an epoch: %v", got)
	}
	var many []*version
	for epoch := range int64(model.MaxContinues + 3) {
		many = append(many, of(epoch+1))
	}
	got := continuedEpochs(many)
	if len(got) != model.MaxContinues || got[0] != 1 || got[len(got)-1] != int64(len(many)) {
		t.Errorf("too many: %v", got)
	}
}
