package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
)

// fakePage is the page size of the fake. It is so small that a list of three items has
// two pages.
const fakePage = 2

// fake is a gateway with its state in memory, behind a real gRPC server on loopback. It implements
// the API. The test controls its clock and its grants.
type fake struct {
	berthv1.UnimplementedReservationsServer
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedExecutorsServer
	berthv1.UnimplementedCatalogServer
	berthv1.UnimplementedUsageServer
	berthv1.UnimplementedFindingsServer
	berthv1.UnimplementedAssignmentsServer
	berthv1.UnimplementedLeadersServer
	berthv1.UnimplementedEventsServer
	berthv1.UnimplementedTenantsServer
	berthv1.UnimplementedOutputsServer
	berthv1.UnimplementedVolumesServer
	berthv1.UnimplementedCallersServer
	berthv1.UnimplementedAuditLogServer

	address string
	// env is the environment of commands, and temp a directory for their files.
	env  map[string]string
	temp string

	mu           sync.Mutex
	now          time.Time
	revision     int64
	notReady     bool
	reservations []*berthv1.Reservation
	executors    []*berthv1.Executor
	listed       int // calls of ListExecutors
	assignments  []*berthv1.Assignment
	volumes      []*berthv1.Volume
	services     []*berthv1.ServiceLeadership
	skus         []*berthv1.Sku
	pools        []*berthv1.Pool
	tenants      []*berthv1.Tenant
	found        []*berthv1.Finding
	outputs      []workerOutput
	caller       *berthv1.Caller
	audited      []*berthv1.AuditEntry
	// blind reports whether executor-state does not answer.
	blind bool
	// unready is why the gateway is not ready and can read no events.
	unready string
	// refused gets an element when GetUsage fails because the registry is not ready.
	refused  chan struct{}
	events   []*berthv1.Event
	answered map[string]*berthv1.Reservation
	// changed is closed and replaced with each event.
	changed chan struct{}
}

func newFake(t *testing.T) *fake {
	return serveFake(t, func(l net.Listener) net.Listener { return l })
}

// serveFake serves a fake on a listener that wrap returns.
func serveFake(t *testing.T, wrap func(net.Listener) net.Listener, options ...grpc.ServerOption) *fake {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener = wrap(listener)
	f := &fake{
		address:  listener.Addr().String(),
		temp:     t.TempDir(),
		now:      time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		revision: 100,
		answered: map[string]*berthv1.Reservation{},
		changed:  make(chan struct{}),
		refused:  make(chan struct{}),
	}
	f.env = map[string]string{"BERTH_GATEWAY": f.address}
	server := rpc.NewServer(rpc.ServerOptions{More: options})
	berthv1.RegisterReservationsServer(server, f)
	berthv1.RegisterExplanationsServer(server, f)
	berthv1.RegisterExecutorsServer(server, f)
	berthv1.RegisterCatalogServer(server, f)
	berthv1.RegisterUsageServer(server, f)
	berthv1.RegisterFindingsServer(server, f)
	berthv1.RegisterAssignmentsServer(server, f)
	berthv1.RegisterLeadersServer(server, f)
	berthv1.RegisterEventsServer(server, f)
	berthv1.RegisterTenantsServer(server, f)
	berthv1.RegisterOutputsServer(server, f)
	berthv1.RegisterVolumesServer(server, f)
	berthv1.RegisterCallersServer(server, f)
	berthv1.RegisterAuditLogServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return f
}

func (f *fake) environment(name string) string { return f.env[name] }

func (f *fake) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fake) find(job, stage, name string) *berthv1.Reservation {
	i := slices.IndexFunc(f.reservations, func(r *berthv1.Reservation) bool {
		return r.Job == job && r.Stage == stage && r.Name == name
	})
	if i < 0 {
		return nil
	}
	return f.reservations[i]
}

// shape is a reservation without its output fields.
func shape(r *berthv1.Reservation) *berthv1.Reservation {
	return &berthv1.Reservation{Constraints: r.Constraints, Task: r.Task, Workers: r.Workers, TargetSize: r.TargetSize,
		Shrink: r.Shrink}
}

func (f *fake) UpsertReservation(_ context.Context, q *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.RequestId == "" {
		return nil, fault.BadField(fault.ReasonRequired, "requestId", "the fake insists on one")
	}
	if first := f.answered[q.RequestId]; first != nil {
		return first, nil
	}
	r := proto.CloneOf(q.Reservation)
	r.Name = cmp.Or(r.Name, "main")
	switch {
	case strings.ContainsAny(r.Job, " !"):
		return nil, fault.BadField(fault.ReasonBadName, "job", "only letters, digits, dots, underscores and hyphens")
	case r.Count > 0 && len(r.Workers) > 0 && int(r.Count) != len(r.Workers):
		return nil, fault.BadField(fault.ReasonInvalid, "count", "give either count or workers")
	case r.Count == 0 && len(r.Workers) == 0:
		return nil, fault.BadField(fault.ReasonRequired, "workers", "name at least one worker, or a count")
	}
	for i := range r.Count - int32(len(r.Workers)) {
		r.Workers = append(r.Workers, &berthv1.WorkerID{Index: i, Number: 1})
	}
	for _, w := range r.Workers {
		w.Number = max(w.Number, 1)
	}
	r.Count = int32(len(r.Workers))

	change := berthv1.UpsertReservationRequest_CREATED
	old := f.find(r.Job, r.Stage, r.Name)
	if old != nil && q.IfEpoch != 0 && q.IfEpoch != old.Epoch {
		return nil, fault.New(fault.Conflict, fault.ReasonEpochMismatch, "the epoch is %d", old.Epoch)
	}
	if old != nil {
		if proto.Equal(shape(old), shape(r)) {
			same := proto.CloneOf(old)
			same.Change = berthv1.UpsertReservationRequest_UNCHANGED.Enum()
			return same, nil
		}
		if old.State == berthv1.Reservation_ACTIVE {
			return updated(old, r), nil
		}
		change = berthv1.UpsertReservationRequest_REPLACED
		f.reservations = slices.DeleteFunc(f.reservations, func(x *berthv1.Reservation) bool { return x == old })
	}
	f.revision++
	r.Epoch = f.revision
	r.Uid = "1-" + strconv.FormatInt(f.revision-100, 36)
	r.RequestId = proto.String("request-of-" + r.Uid) // real request IDs are random
	r.State = berthv1.Reservation_QUEUED
	r.CreatedAt = timestamppb.New(f.now)
	r.UpdatedAt = r.CreatedAt
	f.reservations = append(f.reservations, r)
	f.place()
	f.tell(berthv1.Event_RESERVATION_QUEUED, r, r.Count)
	answer := proto.CloneOf(r)
	answer.Change = change.Enum()
	f.answered[q.RequestId] = answer
	return answer, nil
}

// updated stores a request for a reservation whose workers run: another task applies later, and
// fewer workers do not.
func updated(old, r *berthv1.Reservation) *berthv1.Reservation {
	old.Labels, old.Task = r.Labels, r.Task
	old.FieldResults = []*berthv1.FieldResult{
		{Field: "labels", Applies: berthv1.FieldResult_NOW},
		{Field: "task.command", Applies: berthv1.FieldResult_LATER, Message: "worker 0.1 keeps the earlier value"},
	}
	switch {
	case r.GetShrink() != "":
		old.FieldResults = append(old.FieldResults, &berthv1.FieldResult{Field: "shrink",
			Applies: berthv1.FieldResult_NOW})
	case r.Count < old.Count:
		old.RequestedCount = &r.Count
		old.FieldResults = append(old.FieldResults, &berthv1.FieldResult{Field: "count",
			Applies: berthv1.FieldResult_NO, Message: "worker 1.1 stays, because an upsert stops no worker"})
	}
	answer := proto.CloneOf(old)
	answer.Change = berthv1.UpsertReservationRequest_UPDATED.Enum()
	return answer
}

// place sets the positions of the queued reservations. All reservations are in one queue.
func (f *fake) place() {
	var position int32
	for _, r := range f.reservations {
		r.Position, r.Reason = 0, nil
		if r.State != berthv1.Reservation_QUEUED {
			continue
		}
		position++
		r.Position = position
		if position > 1 {
			r.Reason = proto.String(string(fault.ReasonBehindHead))
		} else {
			r.Reason = proto.String(string(fault.ReasonInsufficientCapacity))
			r.Message = proto.String(fmt.Sprintf("needs %d executors, 0 fit now", r.Count))
		}
	}
}

func (f *fake) tell(kind berthv1.Event_Kind, r *berthv1.Reservation, count int32, workers ...*berthv1.EventWorker) {
	f.events = append(f.events, &berthv1.Event{
		Cursor: fmt.Sprintf("%d.%d", f.revision, len(f.events)), Revision: f.revision, Kind: kind,
		Time: timestamppb.New(f.now),
		Job:  r.Job, Stage: r.Stage, Reservation: r.Name, Uid: r.Uid, Count: count, Workers: workers,
	})
	close(f.changed)
	f.changed = make(chan struct{})
}

// grant starts a queued reservation on the executors, with one worker on each.
func (f *fake) grant(job, stage, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.find(job, stage, name)
	f.revision++
	if r.GetHold() == berthv1.Hold_HOLD && r.State == berthv1.Reservation_QUEUED {
		r.State, r.UpdatedAt, r.Message, r.Rating = berthv1.Reservation_HELD, timestamppb.New(f.now), nil, proto.Int32(60)
		r.ExpiresAt = timestamppb.New(f.now.Add(r.GetHoldTimeout().AsDuration()))
		if r.GetConstraints().GetCells() {
			r.Pools = map[string]*berthv1.CellOffer{
				"zone-a": {State: berthv1.CellOffer_ACCEPTED, Rating: proto.Int32(60)},
				"zone-b": {State: berthv1.CellOffer_ACCEPTED, Rating: proto.Int32(40)},
				"zone-c": {State: berthv1.CellOffer_REJECTED, Reason: proto.String("INSUFFICIENT_CAPACITY"),
					Message: proto.String("2 needed, 1 fit now")},
			}
		}
		f.tell(berthv1.Event_RESERVATION_HELD, r, r.Count)
		f.place()
		return
	}
	r.State, r.UpdatedAt, r.Message = berthv1.Reservation_ACTIVE, timestamppb.New(f.now), nil
	r.WorkerCounts = map[string]int32{"RUNNING": r.Count}
	f.tell(berthv1.Event_RESERVATION_LEASED, r, r.Count)
	for i, workerID := range r.Workers {
		e := f.executors[i]
		e.Workers++
		e.Used = map[string]int64{"slots": 1, "cpu": 2000, "memory": 4 << 30}
		f.assignments = append(f.assignments, &berthv1.Assignment{
			Job: r.Job, Stage: r.Stage, Reservation: r.Name, Uid: r.Uid, Epoch: r.Epoch, Index: workerID.Index,
			Number:   workerID.Number,
			Executor: e.Id, State: berthv1.Assignment_RUNNING, Since: timestamppb.New(f.now), Attempts: 1,
		})
		f.tell(berthv1.Event_WORKER_RUNNING, r, 1, &berthv1.EventWorker{
			Index: workerID.Index, Number: workerID.Number, Executor: &e.Id, State: berthv1.Assignment_RUNNING.Enum(),
		})
	}
	f.place()
}

func (f *fake) GetReservation(_ context.Context, q *berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.find(q.Job, q.Stage, q.Name); r != nil {
		return proto.CloneOf(r), nil
	}
	return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s/%s/%s", q.Job, q.Stage, q.Name)
}

func (f *fake) cancelWhere(match func(*berthv1.Reservation) bool) *berthv1.CancelAnswer {
	f.mu.Lock()
	defer f.mu.Unlock()
	var count int32
	known := false
	f.revision++
	for _, r := range f.reservations {
		known = known || match(r)
		if match(r) && r.State != berthv1.Reservation_CANCELLED {
			r.State, r.UpdatedAt, r.Message = berthv1.Reservation_CANCELLED, timestamppb.New(f.now), nil
			f.tell(berthv1.Event_RESERVATION_CANCELLED, r, r.Count)
			count++
		}
	}
	f.place()
	return &berthv1.CancelAnswer{Cancelled: count, Unknown: ifTrue(!known)}
}

// ifTrue returns the value of an optional field that answers have only if it is true.
func ifTrue(b bool) *bool {
	if !b {
		return nil
	}
	return &b
}

func (f *fake) BindReservation(_ context.Context, q *berthv1.BindReservationRequest) (*berthv1.Reservation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := cmp.Or(q.Name, "main")
	r := f.find(q.Job, q.Stage, name)
	if r == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s/%s/%s", q.Job, q.Stage, name)
	}
	if r.State != berthv1.Reservation_HELD {
		return nil, fault.New(fault.Conflict, fault.ReasonNotHeld, "%s/%s/%s is %s; only a HELD reservation can be bound",
			q.Job, q.Stage, name, r.State)
	}
	f.revision++
	if q.Task != nil {
		r.Task = q.Task
	}
	if cell := r.GetPools()[q.Pool]; cell != nil {
		for _, other := range r.GetPools() {
			if other.State == berthv1.CellOffer_ACCEPTED {
				other.State = berthv1.CellOffer_RELEASED
			}
		}
		cell.State, r.Rating = berthv1.CellOffer_BOUND, cell.Rating
	}
	if !q.KeepHeld {
		r.State, r.UpdatedAt, r.ExpiresAt = berthv1.Reservation_ASSIGNING, timestamppb.New(f.now), nil
		f.tell(berthv1.Event_RESERVATION_BOUND, r, r.Count)
	}
	answer := proto.CloneOf(r)
	answer.Change = berthv1.UpsertReservationRequest_BOUND.Enum()
	return answer, nil
}

func (f *fake) CancelReservation(_ context.Context, q *berthv1.CancelReservationRequest) (*berthv1.CancelAnswer,
	error) {
	return f.cancelWhere(func(r *berthv1.Reservation) bool {
		return r.Job == q.Job && r.Stage == q.Stage && r.Name == q.Name
	}), nil
}

func (f *fake) CancelJob(_ context.Context, q *berthv1.CancelJobRequest) (*berthv1.CancelAnswer, error) {
	return f.cancelWhere(func(r *berthv1.Reservation) bool { return r.Job == q.Job }), nil
}

// page returns a page of the matching items of a list.
func page[T proto.Message](list []T, token string, match func(T) bool) (items []T, next string) {
	var all []T
	for _, item := range list {
		if match(item) {
			all = append(all, proto.CloneOf(item))
		}
	}
	from, _ := strconv.Atoi(token)
	to := min(from+fakePage, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next
}

// ListJobs counts the reservations that have not ended.
func (f *fake) ListJobs(_ context.Context, q *berthv1.ListJobsRequest) (*berthv1.ListJobsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	jobs := map[string]*berthv1.Job{}
	for _, r := range f.reservations {
		if model.State(r.State).Terminal() || q.Prefix != "" && !model.Covers(q.Prefix, r.Job) {
			continue
		}
		j := jobs[r.Job]
		if j == nil {
			j = &berthv1.Job{Name: r.Job}
			jobs[r.Job] = j
		}
		j.Reservations++
		if at := cmp.Or(r.UpdatedAt, r.CreatedAt); j.LastActivity.AsTime().Before(at.AsTime()) {
			j.LastActivity = at
		}
		if r.State == berthv1.Reservation_QUEUED {
			j.PendingReservations++
			j.PendingWorkers += r.Count
		}
		j.RunningWorkers += r.WorkerCounts["RUNNING"]
	}
	list := slices.SortedFunc(maps.Values(jobs), func(a, b *berthv1.Job) int { return strings.Compare(a.Name, b.Name) })
	items, next := page(list, q.PageToken, func(*berthv1.Job) bool { return true })
	return &berthv1.ListJobsAnswer{Jobs: items, NextPageToken: next, Revision: f.revision}, nil
}

// fakeGroup is the ID of the group of all reservations.
const fakeGroup = "g-7f3a"

func (f *fake) ListReservations(_ context.Context,
	q *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.Group != "" && q.Job != "" {
		return nil, fault.BadField(fault.ReasonInvalid, "job", "must not be set together with group")
	}
	items, next := page(f.reservations, q.PageToken, func(r *berthv1.Reservation) bool {
		return (q.Job == "" || q.Job == r.Job) && (q.Stage == "" || q.Stage == r.Stage) &&
			(q.Reservation == "" || q.Reservation == r.Name) && (q.State == 0 || q.State == r.State) &&
			(q.Group == "" || q.Group == fakeGroup && r.State == berthv1.Reservation_QUEUED)
	})
	answer := &berthv1.ListReservationsAnswer{Reservations: items, NextPageToken: next, Revision: f.revision}
	for _, r := range items {
		if !q.Versions {
			r.Workers = nil
		} else if q.PageToken == "" {
			answer.Stages = append(answer.Stages, &berthv1.StageWorkers{Stage: r.Stage, TargetSize: r.TargetSize})
		}
	}
	return answer, nil
}

func (f *fake) ListPending(context.Context, *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notReady {
		return nil, notReady()
	}
	answer := &berthv1.ListPendingAnswer{Ready: true, Revision: f.revision}
	for _, r := range f.reservations {
		if r.State != berthv1.Reservation_QUEUED {
			continue
		}
		if len(answer.Groups) == 0 {
			answer.Groups = []*berthv1.PendingGroup{{
				Id: fakeGroup, Constraints: r.Constraints, Head: &berthv1.ReservationKey{Job: r.Job, Stage: r.Stage, Name: r.Name},
				HeadAge: durationpb.New(f.now.Sub(r.CreatedAt.AsTime())), Reason: r.GetReason(), Message: r.GetMessage(),
			}}
		}
		answer.Groups[0].Reservations++
		answer.Groups[0].Workers += r.Count
		answer.TotalGroups, answer.TotalReservations = 1, answer.TotalReservations+1
		answer.TotalWorkers += r.Count
	}
	return answer, nil
}

// GetPendingHistory has a point of a minute ago, and one of now.
func (f *fake) GetPendingHistory(context.Context,
	*berthv1.GetPendingHistoryRequest) (*berthv1.GetPendingHistoryAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := &berthv1.PendingPoint{Time: timestamppb.New(f.now)}
	for _, r := range f.reservations {
		if r.State == berthv1.Reservation_QUEUED {
			now.Groups = 1
			now.Reservations++
			now.Workers += r.Count
		}
	}
	return &berthv1.GetPendingHistoryAnswer{Interval: durationpb.New(time.Minute), Points: []*berthv1.PendingPoint{
		{Time: timestamppb.New(f.now.Add(-time.Minute))}, now,
	}}, nil
}

func (f *fake) ListExecutors(_ context.Context, q *berthv1.ListExecutorsRequest) (*berthv1.ListExecutorsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	items, next := page(f.executors, q.PageToken, func(e *berthv1.Executor) bool {
		return (q.Sku == "" || q.Sku == e.Sku) && (q.State == 0 || q.State == e.State) &&
			(q.Pool == "" || q.Pool == e.Pool) && (len(q.Attributes) == 0 || maps.Equal(q.Attributes, e.Attributes))
	})
	return &berthv1.ListExecutorsAnswer{Executors: items, NextPageToken: next, Revision: f.revision,
		TotalSize: int32(len(f.executors))}, nil
}

func (f *fake) GetExecutor(_ context.Context, q *berthv1.GetExecutorRequest) (*berthv1.Executor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.executor(q.Id); e != nil {
		f.obey(e)
		e = proto.CloneOf(e)
		e.Leases = f.leases(q.Id)
		return e, nil
	}
	return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", q.Id)
}

func (f *fake) ListAssignments(_ context.Context, q *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items, next := page(f.assignments, q.PageToken, func(a *berthv1.Assignment) bool {
		return (q.Job == "" || q.Job == a.Job) && (q.Executor == "" || q.Executor == a.Executor) &&
			(q.Stage == "" || q.Stage == a.Stage) && (q.Reservation == "" || q.Reservation == a.Reservation) &&
			(q.State == 0 || q.State == a.State)
	})
	return &berthv1.ListAssignmentsAnswer{Assignments: items, NextPageToken: next, Revision: f.revision}, nil
}

func (f *fake) ListMembers(_ context.Context, q *berthv1.ListMembersRequest) (*berthv1.ListMembersAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.ListMembersAnswer{Revision: f.revision}
	for _, a := range f.assignments {
		if a.Job == q.Job && a.Stage == q.Stage && a.Reservation == cmp.Or(q.Name, model.MainName) {
			answer.Members = append(answer.Members, &berthv1.Member{Index: a.Index, Number: a.Number, Executor: a.Executor,
				Host: a.Executor + ".example.com"})
			if a.State > berthv1.Assignment_EVICTING {
				answer.GaveUp = append(answer.GaveUp, &berthv1.IndexRange{First: a.Index, Last: a.Index})
			}
		}
	}
	answer.Workers, answer.Cursor = int32(len(answer.Members)), fmt.Sprint(len(answer.Members))
	answer.Members, answer.NextPageToken = page(answer.Members, q.PageToken, func(*berthv1.Member) bool { return true })
	return answer, nil
}

func (f *fake) ListLeaders(context.Context, *berthv1.ListLeadersRequest) (*berthv1.ListLeadersAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &berthv1.ListLeadersAnswer{}
	if f.unready != "" {
		answer.NotReady = []string{f.unready}
	}
	for _, s := range f.services {
		answer.Services = append(answer.Services, proto.CloneOf(s))
	}
	return answer, nil
}

// Resign makes the first standby the leader.
func (f *fake) Resign(_ context.Context, q *berthv1.ResignRequest) (*berthv1.ResignAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.services {
		if s.Service != q.Service {
			continue
		}
		answer := &berthv1.ResignAnswer{Service: s.Service, Term: q.Term}
		if q.Term == s.Term {
			answer.Replica, s.Leader, s.Term = s.Leader, s.Replicas[0].Id, s.Term+15
		}
		return answer, nil
	}
	return nil, fault.BadField(fault.ReasonInvalid, "service",
		"must be one of registry, executor-state, assigner, got %q", q.Service)
}

func notReadyGateway(reason string) error {
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the gateway is not ready: %s", reason)
}

func (f *fake) WatchEvents(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
	if q.Since == "1.0" {
		return fault.New(fault.OutOfRange, fault.ReasonEventsCompacted,
			"events before cursor 101.0 are no longer kept").With("cursor", "101.0")
	}
	f.mu.Lock()
	unready := f.unready
	f.mu.Unlock()
	if unready != "" {
		return notReadyGateway(unready)
	}
	if err := stream.SendHeader(rpc.StoredHeader(q.Stored)); err != nil {
		return err
	}
	passed := q.Since == ""
	for next := 0; ; {
		f.mu.Lock()
		fresh, changed := f.events[next:], f.changed
		next = len(f.events)
		f.mu.Unlock()
		for _, e := range fresh {
			if passed && e.Job == q.Job {
				if err := stream.Send(e); err != nil {
					return err
				}
			}
			passed = passed || e.Cursor == q.Since
		}
		if q.Stored {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
