package internal

import (
	"errors"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

func TestCancelWorkers(t *testing.T) {
	s := start(t)
	made, err := s.UpsertReservation(t.Context(), upsert("j", "map", ""))
	if err != nil {
		t.Fatal(err)
	}
	cancel := &berthv1.CancelWorkersRequest{
		Job: "j", Stage: "map", RequestId: "c",
		Workers: []*berthv1.WorkerID{{Index: 1, Number: 1}, {Index: 2, Number: 7}},
	}
	for range 2 {
		if answer, err := s.CancelWorkers(t.Context(), cancel); err != nil || answer.GetCancelled() != 1 {
			t.Errorf("cancelled %v, %v", answer, err)
		}
	}
	left, err := s.GetReservation(t.Context(), &berthv1.GetReservationRequest{Job: "j", Stage: "map"})
	if err != nil || left.GetUid() == made.GetUid() || len(left.GetWorkers()) != 2 {
		t.Errorf("remaining version %v, %v", left, err)
	}
}

func TestCancelWorkersRefusals(t *testing.T) {
	s := start(t)
	one := []*berthv1.WorkerID{{Number: 1}}
	for field, request := range map[string]*berthv1.CancelWorkersRequest{
		"job":               {Stage: "s", Workers: one},
		"stage":             {Job: "j", Stage: "/", Workers: one},
		"requestId":         {Job: "j", Stage: "s", Workers: one, RequestId: "a b"},
		"workers":           {Job: "j", Stage: "s"},
		"workers[1].index":  {Job: "j", Stage: "s", Workers: []*berthv1.WorkerID{{Number: 1}, {Index: -1, Number: 1}}},
		"workers[0].number": {Job: "j", Stage: "s", Workers: []*berthv1.WorkerID{{Number: -1}}},
	} {
		_, err := s.CancelWorkers(t.Context(), request)
		var f *fault.Error
		if !errors.As(err, &f) || len(f.Fields) != 1 || f.Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
