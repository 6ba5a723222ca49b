package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// TestWaitNamesTheLastRound checks that the errors of wait do not repeat the cause of each round.
func TestWaitNamesTheLastRound(t *testing.T) {
	rounds := "round 1: worker 0.1 on a-0: exit code 3; round 2: worker 1.2 on a-1: exit code 3"
	r := &berthv1.Reservation{Job: "train", Stage: "gpu", Name: "main", State: berthv1.Reservation_COMPLETED, Count: 2,
		Message: &rounds}
	ended := fault.New(fault.Precondition, "", "train/gpu/main ended FAILED: %s", rounds)
	for _, err := range []error{incomplete(r), withLastRound(r, ended)} {
		if !strings.Contains(err.Error(), ": 2 rounds, last: exit code 3") || strings.Contains(err.Error(), "round 1") {
			t.Error(err)
		}
	}
	r.Message = proto.String("cancelled by alice")
	if err := incomplete(r); !strings.Contains(err.Error(), "cancelled by alice") {
		t.Error(err)
	}
}
