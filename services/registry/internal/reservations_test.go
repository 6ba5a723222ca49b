package internal

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
	"berth.dev/testkit/looptest"
	"berth.dev/testkit/rpctest"
)

// start starts a registry without other services.
func start(t *testing.T) *Reservations {
	silent := func(*loop.Term, *queue.Core, model.Action) {}
	return NewReservations(looptest.Start(t, store.NewFake(store.FakeConfig{}), model.ServiceRegistry,
		func() *queue.Core { return queue.New(queue.Config{}) }, silent), nil)
}

func upsert(job, stage, request string) *berthv1.UpsertReservationRequest {
	return &berthv1.UpsertReservationRequest{RequestId: request, Reservation: &berthv1.Reservation{
		Job: job, Stage: stage, Count: 3, Task: &berthv1.Task{Command: "true"},
	}}
}

func TestUpsertGetCancel(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	made, err := s.UpsertReservation(ctx, upsert("j", "map", "r1"))
	if err != nil {
		t.Fatal(err)
	}
	if made.GetChange() != berthv1.UpsertReservationRequest_CREATED || made.GetState() != berthv1.Reservation_QUEUED ||
		made.GetName() != model.MainName || made.GetUid() == "" || made.GetEpoch() == 0 || made.GetPosition() != 1 {
		t.Errorf("made %v", made)
	}
	again, err := s.UpsertReservation(ctx, upsert("j", "map", "r1"))
	if err != nil || again.GetUid() != made.GetUid() || again.GetChange() != berthv1.UpsertReservationRequest_CREATED {
		t.Errorf("a repeat answers %v, %v", again, err)
	}
	got, err := s.GetReservation(ctx, &berthv1.GetReservationRequest{Job: "j", Stage: "map"})
	if err != nil {
		t.Fatal(err)
	}
	made.Change, made.State = nil, berthv1.Reservation_LEASING
	if !proto.Equal(got, made) {
		t.Errorf("got  %v\nmade %v", got, made)
	}

	pending, err := s.ListPending(ctx, &berthv1.ListPendingRequest{})
	if err != nil || len(pending.GetGroups()) != 1 || !pending.GetReady() {
		t.Fatal(pending, err)
	}
	if g := pending.GetGroups()[0]; g.GetReservations() != 1 || g.GetWorkers() != 3 || g.GetHead().GetStage() != "map" ||
		g.GetHeadAge().AsDuration() < 0 {
		t.Errorf("pending %v", g)
	}

	cancelled, err := s.CancelReservation(ctx, &berthv1.CancelReservationRequest{Job: "j", Stage: "map"})
	if err != nil || cancelled.GetCancelled() != 1 {
		t.Errorf("cancelled %v, %v", cancelled, err)
	}
	if got, err := s.GetReservation(ctx, &berthv1.GetReservationRequest{Job: "j", Stage: "map",
		Name: model.MainName}); err != nil || got.GetState() == berthv1.Reservation_LEASING {
		t.Errorf("after the cancel: %v, %v", got, err)
	}
	for range 2 {
		if _, err := s.UpsertReservation(ctx, upsert("j", "reduce", "")); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := s.CancelJob(ctx, &berthv1.CancelJobRequest{Job: "j"}); err != nil || answer.GetCancelled() != 1 {
		t.Errorf("the job: %v, %v", answer, err)
	}
}

func TestRefusals(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	for name, test := range map[string]struct {
		call   func() error
		kind   fault.Kind
		reason fault.Reason
	}{
		"nothing to upsert": {func() error {
			_, err := s.UpsertReservation(ctx,
				&berthv1.UpsertReservationRequest{})
			return err
		}, fault.Invalid, fault.ReasonRequired},
		"a bad name": {func() error { _, err := s.UpsertReservation(ctx, upsert("A/B", "s", "")); return err },
			fault.Invalid, fault.ReasonBadName},
		"not there": {func() error {
			_, err := s.GetReservation(ctx, &berthv1.GetReservationRequest{Job: "j", Stage: "s"})
			return err
		}, fault.NotFound, fault.ReasonNotFound},
		"a page too large": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{PageSize: replica.MaxPage + 1})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a page below nothing": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{PageSize: -1})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"an unknown state": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{State: 256 + berthv1.Reservation_QUEUED})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"versions of all jobs": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{Versions: true})
			return err
		}, fault.Invalid, fault.ReasonRequired},
		"the token of another list": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{Job: "j", Versions: true, PageToken: "j/s/main"})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a reservation of any job": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{Stage: "s", Reservation: "main"})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a reservation of any stage": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{Job: "j", Reservation: "main"})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a reservation in a group": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{Group: "g", Reservation: "main"})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a page of groups that is too large": {func() error {
			_, err := s.ListPending(ctx, &berthv1.ListPendingRequest{PageSize: replica.MaxPage + 1})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a bad prefix": {func() error {
			_, err := s.ListJobs(ctx, &berthv1.ListJobsRequest{Prefix: "a/b"})
			return err
		}, fault.Invalid, fault.ReasonBadName},
		"a page of jobs that is too large": {func() error {
			_, err := s.ListJobs(ctx, &berthv1.ListJobsRequest{PageSize: replica.MaxPage + 1})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"the token of a list of reservations": {func() error {
			_, err := s.ListJobs(ctx, &berthv1.ListJobsRequest{PageToken: "j/s/main"})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
		"a bad token": {func() error {
			_, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{PageToken: "j/s"})
			return err
		}, fault.Invalid, fault.ReasonInvalid},
	} {
		err := test.call()
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != test.kind || f.Reason != test.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The queue of a group is in its order and in pages. Nothing else may restrict it.
func TestListQueue(t *testing.T) {
	s := start(t)
	for i, job := range []string{"c", "a", "b", "other"} {
		request := upsert(job, "map", "")
		if i == 3 {
			request.Reservation.Constraints = &berthv1.Constraints{Sku: "gpu"}
		}
		if _, err := s.UpsertReservation(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	standing, err := NewQueue(s.loop).Standing(t.Context(), &berthv1.ExplainReservationRequest{Job: "a", Stage: "map"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for request := (&berthv1.ListReservationsRequest{Group: standing.GetGroup(), PageSize: 1}); ; {
		page, err := s.ListReservations(t.Context(), request)
		if err != nil || len(page.GetReservations()) != 1 || page.GetRevision() == 0 || page.GetCursor() == "" {
			t.Fatalf("%v, %v", page, err)
		}
		r := page.GetReservations()[0]
		if got = append(got, r.GetJob()); int(r.GetPosition()) != len(got) || r.GetWorkers() != nil || r.GetCount() != 3 {
			t.Errorf("number %d is %v", len(got), r)
		}
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("the queue has %v", got)
	}
	if answer, err := s.ListReservations(t.Context(), &berthv1.ListReservationsRequest{Group: "unknown"}); err != nil ||
		len(answer.GetReservations()) != 0 || answer.GetNextPageToken() != "" {
		t.Errorf("the unknown group has %v, %v", answer, err)
	}
	for field, request := range map[string]*berthv1.ListReservationsRequest{
		"job": {Job: "a"}, "stage": {Stage: "map"}, "versions": {Versions: true},
		"state":    {State: berthv1.Reservation_ACTIVE},
		"pageSize": {PageSize: -1}, "pageToken": {PageToken: "a/map/main"},
	} {
		request.Group = standing.GetGroup()
		_, err := s.ListReservations(t.Context(), request)
		if f := fault.Of(err); err == nil || f.Kind != fault.Invalid || f.Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if answer, err := s.ListReservations(t.Context(), &berthv1.ListReservationsRequest{Group: standing.GetGroup(),
		State: berthv1.Reservation_QUEUED}); err != nil || len(answer.GetReservations()) != 2 {
		t.Errorf("without the candidate in a cycle: %v, %v", answer, err)
	}
}

// The pages of the list of queues together have every queue once, and each has the totals.
func TestListPendingPages(t *testing.T) {
	s := start(t)
	for _, sku := range []string{"a", "b", "c"} {
		request := upsert("j"+sku, "map", "")
		request.Reservation.Constraints = &berthv1.Constraints{Sku: sku}
		if _, err := s.UpsertReservation(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for request := (&berthv1.ListPendingRequest{PageSize: 2}); ; {
		page, err := s.ListPending(t.Context(), request)
		if err != nil || page.GetTotalGroups() != 3 || page.GetTotalReservations() != 3 || page.GetTotalWorkers() != 9 {
			t.Fatalf("%v, %v", page, err)
		}
		for _, g := range page.GetGroups() {
			ids = append(ids, g.GetId())
		}
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			break
		}
		if len(page.GetGroups()) != 2 {
			t.Errorf("a page has %d groups", len(page.GetGroups()))
		}
	}
	if len(ids) != 3 || !slices.IsSorted(ids) {
		t.Errorf("the groups are %v", ids)
	}
}

// The pages of a list of jobs together contain every job exactly once, in order.
func TestListJobs(t *testing.T) {
	s := start(t)
	for _, job := range []string{"b", "a", "c", "b"} {
		for i := range 2 {
			if _, err := s.UpsertReservation(t.Context(), upsert(job, fmt.Sprint("s", i), "")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for req := (&berthv1.ListJobsRequest{PageSize: 2}); ; {
		answer, err := s.ListJobs(t.Context(), req)
		if err != nil || answer.GetRevision() == 0 {
			t.Fatal(answer, err)
		}
		for _, j := range answer.GetJobs() {
			got = append(got, j.GetName())
			last := j.GetLastActivity()
			j.LastActivity = nil
			want := &berthv1.Job{Name: j.GetName(), Reservations: 2, PendingReservations: 2, PendingWorkers: 6}
			if !proto.Equal(j, want) || time.Since(last.AsTime()) > time.Minute {
				t.Errorf("%v, active at %v, want %v", j, last.AsTime(), want)
			}
		}
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %v", got)
	}
}

// The pages of a list together contain every reservation exactly once, in order.
func TestListPages(t *testing.T) {
	s := start(t)
	var want, got []string
	for i := range 7 {
		stage := fmt.Sprintf("s%d", i)
		if _, err := s.UpsertReservation(t.Context(), upsert("j", stage, "")); err != nil {
			t.Fatal(err)
		}
		want = append(want, stage)
	}
	if _, err := s.UpsertReservation(t.Context(), upsert("other", "s", "")); err != nil {
		t.Fatal(err)
	}
	req := &berthv1.ListReservationsRequest{Job: "j", PageSize: 3}
	pages := 0
	for {
		pages++
		answer, err := s.ListReservations(t.Context(), req)
		if err != nil || answer.GetRevision() == 0 {
			t.Fatal(answer, err)
		}
		for _, r := range answer.GetReservations() {
			got = append(got, r.GetStage())
		}
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if !slices.Equal(got, want) || pages != 3 {
		t.Errorf("%d pages of %v", pages, got)
	}
}

// The pages of a list contain all versions of a job exactly once, with their workers. The
// first page also has the worker IDs that each stage has used, and its target size. Each page has the cursor of
// the last event that the page includes.
func TestListVersions(t *testing.T) {
	s := start(t)
	for _, count := range []int32{3, 4} {
		for _, stage := range []string{"map", "reduce"} {
			request := upsert("j", stage, "")
			request.Reservation.Count, request.Reservation.TargetSize = count, 5
			if _, err := s.UpsertReservation(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for req := (&berthv1.ListReservationsRequest{Job: "j", Versions: true, PageSize: 3}); ; {
		answer, err := s.ListReservations(t.Context(), req)
		if err != nil || answer.GetCursor() != fmt.Sprintf("%d-%d", answer.GetRevision(), math.MaxInt64) {
			t.Fatal(answer, err)
		}
		for _, r := range answer.GetReservations() {
			got = append(got, fmt.Sprint(r.GetStage(), " ", len(r.GetWorkers()), " ",
				r.GetState() == berthv1.Reservation_REPLACED))
		}
		var used []string
		for _, stage := range answer.GetStages() {
			last := stage.GetWorkers()[len(stage.GetWorkers())-1]
			used = append(used, fmt.Sprintf("%s to %d.%d of %d", stage.GetStage(), last.GetIndex(), last.GetNumber(),
				stage.GetTargetSize()))
		}
		if first := req.GetPageToken() == ""; first != slices.Equal(used, []string{"map to 3.1 of 5", "reduce to 3.1 of 5"}) {
			t.Errorf("first page %v: used %q", first, used)
		}
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if want := []string{"map 3 true", "map 4 false", "reduce 3 true", "reduce 4 false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every read of a queued reservation shows which executors it avoids after a failure, and
// until when. The reads are Get, List, the pending groups and the explanation.
func TestReadsShowAvoidedExecutors(t *testing.T) {
	db := store.NewFake(store.FakeConfig{})
	at := time.Now().Add(-time.Minute)
	r := &model.Reservation{
		UID: "u-1", Key: model.Key{Job: "j", Stage: "s", Name: model.MainName}, State: model.Queued,
		Workers: model.WorkerSetOf([]model.WorkerID{{Number: 1}}), Place: 1, Round: 1,
		Failed: []model.FailedOn{{Executor: "forgiven", At: at.Add(-model.AvoidFor)}, {Executor: "avoided", At: at}},
	}
	value, err := wire.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(looptest.Space.Key(r.Ref()),
		value)}}); err != nil {
		t.Fatal(err)
	}
	l := looptest.Start(t, db, model.ServiceRegistry, func() *queue.Core { return queue.New(queue.Config{}) },
		func(*loop.Term, *queue.Core, model.Action) {})
	s, ctx := NewReservations(l, nil), t.Context()
	read, err := s.GetReservation(ctx, &berthv1.GetReservationRequest{Job: "j", Stage: "s"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.ListReservations(ctx, &berthv1.ListReservationsRequest{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	pending, err := s.ListPending(ctx, &berthv1.ListPendingRequest{})
	if err != nil {
		t.Fatal(err)
	}
	standing, err := NewQueue(l).Standing(ctx, &berthv1.ExplainReservationRequest{Job: "j", Stage: "s"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*berthv1.AvoidedExecutor{{Executor: "avoided", Until: timestamppb.New(at.Add(model.AvoidFor))}}
	for name, got := range map[string][]*berthv1.AvoidedExecutor{
		"get": read.GetAvoided(), "list": list.GetReservations()[0].GetAvoided(),
		"pending": pending.GetGroups()[0].GetAvoided(), "standing": standing.GetReservation().GetAvoided(),
	} {
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// Every page fits in one message between replicas and gateways, even if its reservations
// are large. The pages together contain every reservation exactly once.
func TestPagesOfLargeReservationsFitMessages(t *testing.T) {
	s := start(t)
	var want []string
	for i := range 30 {
		request := upsert("j", fmt.Sprintf("s%02d", i), "")
		request.Reservation.Task.Args = slices.Repeat([]string{strings.Repeat("x", 120_000)}, 5)
		if _, err := s.UpsertReservation(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		want = append(want, request.Reservation.Stage)
	}
	client := berthv1.NewReservationsClient(rpctest.Serve(t,
		func(r grpc.ServiceRegistrar) { berthv1.RegisterReservationsServer(r, s) }))
	for _, req := range []*berthv1.ListReservationsRequest{{}, {Job: "j", Versions: true, PageSize: 1000}} {
		var got []string
		pages, total := 0, 0
		for {
			answer, err := client.ListReservations(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			size := proto.Size(answer)
			if pages++; size > replica.PageBytes+1<<10 {
				t.Errorf("page %d takes %d bytes", pages, size)
			}
			total += size
			for _, r := range answer.GetReservations() {
				got = append(got, r.GetStage())
			}
			if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, want) || pages != 3 || total <= rpc.PeerMessageLimit {
			t.Errorf("%d pages with %d bytes of %v", pages, total, got)
		}
	}
}
