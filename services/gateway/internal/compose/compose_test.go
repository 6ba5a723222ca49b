package compose_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/services/gateway/internal/compose"
)

// services maps each method to its answer, which is a message or an error. A call of a
// method without an answer waits for a leader until its deadline.
type services struct {
	grpc.ClientConnInterface
	answers map[string]any
	asked   chan proto.Message
}

func serve(answers map[string]any) *services {
	return &services{answers: answers, asked: make(chan proto.Message, 10)}
}

func (s *services) Invoke(ctx context.Context, method string, in, out any, _ ...grpc.CallOption) error {
	s.asked <- in.(proto.Message)
	switch answer := s.answers[method[strings.LastIndex(method, "/")+1:]].(type) {
	case proto.Message:
		proto.Merge(out.(proto.Message), answer)
		return nil
	case error:
		return answer
	}
	<-ctx.Done()
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "no leader")
}

func standing(position int32) *berthv1.Explanation {
	return &berthv1.Explanation{
		Reservation: &berthv1.Reservation{
			Job: "j", Stage: "s", Name: "main", State: berthv1.Reservation_QUEUED, Count: 4,
			Constraints: &berthv1.Constraints{Sku: "gpu-8", Avoid: []string{"e-1"}},
			Avoided:     []*berthv1.AvoidedExecutor{{Executor: "e-2", Until: timestamppb.New(time.Unix(9, 0))}},
		},
		Group: "g", Position: position, Queued: 2, Reason: "BEHIND_HEAD", Message: "behind another reservation",
	}
}

func TestExplanation(t *testing.T) {
	checks := []*berthv1.FailedCheck{{Check: "sku", Want: "gpu-8", Have: "small", Count: 7}}
	some := &controlv1.ExplainFitAnswer{Fitting: 1, Reason: "INSUFFICIENT_CAPACITY", Message: "1 of 4 fits",
		Checks: checks, Revision: 99, ScarcestResource: "cpu"}
	all := &controlv1.ExplainFitAnswer{Fitting: 4, Revision: 99}
	for _, c := range []struct {
		name             string
		position         int32
		fit              *controlv1.ExplainFitAnswer
		fitting, missing int32
		reason, message  string
	}{
		{"the head, some fit", 1, some, 1, 3, "INSUFFICIENT_CAPACITY", "1 of 4 fits"},
		{"the head, all fit", 1, all, 4, 0, "NOT_TRIED", "all 4 workers would fit now; the next scheduling cycle tries them"},
		{"behind, some fit", 2, some, 1, 3, "BEHIND_HEAD", "behind another reservation"},
		{"behind, all fit", 2, all, 4, 0, "BEHIND_HEAD", "behind another reservation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(map[string]any{"Standing": standing(c.position), "ExplainFit": c.fit})
			request := &berthv1.ExplainReservationRequest{Job: "j", Stage: "s"}
			got, err := compose.New(s, nil, nil).ExplainReservation(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			want := standing(c.position)
			want.Needed, want.Fitting, want.Missing = 4, c.fitting, c.missing
			want.Reason, want.Message = c.reason, c.message
			want.Checks, want.ExecutorRevision, want.ScarcestResource = c.fit.Checks, 99, c.fit.ScarcestResource
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			wantAsked := &controlv1.ExplainFitRequest{Constraints: want.Reservation.Constraints, Needed: 4,
				AvoidFailed: []string{"e-2"}}
			if diff := cmp.Diff([]proto.Message{request, wantAsked}, []proto.Message{<-s.asked, <-s.asked},
				protocmp.Transform()); diff != "" {
				t.Errorf("requests -want +got:\n%s", diff)
			}
		})
	}
}

// While the registry is not ready, it leases nothing, even if all workers fit.
func TestNotReadyIsTheReason(t *testing.T) {
	waits := standing(1)
	waits.Reason, waits.Message = "REGISTRY_NOT_READY", ""
	s := serve(map[string]any{"Standing": waits, "ExplainFit": &controlv1.ExplainFitAnswer{Fitting: 4, Revision: 99}})
	got, err := compose.New(s, nil, nil).ExplainReservation(t.Context(), &berthv1.ExplainReservationRequest{})
	if err != nil || got.GetReason() != "REGISTRY_NOT_READY" || got.GetFitting() != 4 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestOnlyQueuedReservationsAreFitted(t *testing.T) {
	active := standing(0)
	active.Reservation.State = berthv1.Reservation_ACTIVE
	s := serve(map[string]any{"Standing": active})
	got, err := compose.New(s, nil, nil).ExplainReservation(t.Context(), &berthv1.ExplainReservationRequest{})
	if diff := cmp.Diff(active, got, protocmp.Transform()); diff != "" || err != nil || len(s.asked) != 1 {
		t.Errorf("%d calls, %v\n%s", len(s.asked), err, diff)
	}
}

func TestRegistryErrorIsReturned(t *testing.T) {
	missing := fault.New(fault.NotFound, fault.ReasonNotFound, "reservation not found")
	s := serve(map[string]any{"Standing": missing})
	_, err := compose.New(s, nil, nil).ExplainReservation(t.Context(), &berthv1.ExplainReservationRequest{})
	if !errors.Is(err, missing) {
		t.Errorf("got %v", err)
	}
}

// If executor-state has no leader, the explanation contains only the registry's part. The
// gateway answers after at most half of the caller's time.
func TestAnExplanationWithoutExecutorState(t *testing.T) {
	for name, fit := range map[string]any{
		"no leader":       nil,
		"no such service": fault.New(fault.Invalid, fault.ReasonUnsupported, "no leader"),
		"no deadline":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(map[string]any{"Standing": standing(1), "ExplainFit": fit})
				ctx := t.Context()
				if name != "no deadline" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 400*time.Millisecond)
					defer cancel()
				}
				began := time.Now()
				got, err := compose.New(s, nil, nil).ExplainReservation(ctx, &berthv1.ExplainReservationRequest{})
				if err != nil {
					t.Fatal(err)
				}
				want := standing(1)
				want.Needed, want.Message = 4, "behind another reservation; the number of workers that fit now is not known: no leader"
				if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if took := time.Since(began); name == "no leader" && took != 200*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestACanceledCallGetsNoPartialAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(map[string]any{"Standing": standing(1)})
	go func() {
		<-s.asked
		<-s.asked
		cancel()
	}()
	if _, err := compose.New(s, nil, nil).ExplainReservation(ctx, &berthv1.ExplainReservationRequest{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := compose.New(serve(nil), nil, nil).ListFindings(ctx, &berthv1.ListFindingsRequest{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Findings are listed by time. If several services quarantine one record, the list has one
// finding about it.
func TestFindingsAreMergedInOrderOfTime(t *testing.T) {
	finding := func(service, kind, object string, since int64) *berthv1.Finding {
		return &berthv1.Finding{Service: service, Kind: kind, Object: object, Since: timestamppb.New(time.Unix(since, 0))}
	}
	answer := func(list ...*berthv1.Finding) *berthv1.ListFindingsAnswer {
		return &berthv1.ListFindingsAnswer{Findings: list}
	}
	s := serve(map[string]any{
		"QueueFindings": answer(finding("registry", "A", "x", 5), finding("registry", "A", "y", 3),
			finding("registry", "POISON", "executors/records/h", 6)),
		"InventoryFindings": answer(finding("", "B", "x", 4), finding("executor-state", "A", "w", 3),
			finding("executor-state", "POISON", "executors/records/h", 7)),
		"DispatchFindings": answer(finding("assigner", "POISON", "executors/records/h", 8)),
	})
	got, err := compose.New(s, nil, nil).ListFindings(t.Context(), &berthv1.ListFindingsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	record := finding("executor-state", "POISON", "executors/records/h", 7)
	record.Message = "; also quarantined by the assigner and the registry"
	want := answer(finding("executor-state", "A", "w", 3), finding("registry", "A", "y", 3),
		finding("executor-state", "B", "x", 4), finding("registry", "A", "x", 5), record)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUnavailableServiceIsAFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := &berthv1.Finding{Service: "registry", Kind: "A", Since: timestamppb.New(time.Unix(1, 0))}
		s := serve(map[string]any{
			"QueueFindings":    &berthv1.ListFindingsAnswer{Findings: []*berthv1.Finding{found}},
			"DispatchFindings": errors.New("broken"),
		})
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		got, err := compose.New(s, nil, nil).ListFindings(ctx, &berthv1.ListFindingsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		unavailable := func(service, message string) *berthv1.Finding {
			return &berthv1.Finding{
				Kind: "SERVICE_UNAVAILABLE", Object: service, Service: "gateway", Message: message,
				Action: "Calls to this service wait until it answers. Start its replicas, check that the gateway reaches them, and check etcd: run berth doctor.",
			}
		}
		want := &berthv1.ListFindingsAnswer{Findings: []*berthv1.Finding{
			unavailable("assigner", "broken"), unavailable("executor-state", "no leader"), found,
		}}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
