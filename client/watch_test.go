package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// eventOf returns an event about the given workers of stage s of job j.
func eventOf(revision int64, kind berthv1.Event_Kind, uid string, workers ...*berthv1.EventWorker) *berthv1.Event {
	return &berthv1.Event{
		Cursor: fmt.Sprint(revision), Revision: revision, Kind: kind, Job: "j", Stage: "s", Reservation: "main", Uid: uid,
		Workers: workers, Count: int32(len(workers)),
	}
}

func of(index, number int32, state berthv1.Assignment_State) *berthv1.EventWorker {
	return &berthv1.EventWorker{Index: index, Number: number, State: &state}
}

// script is a gateway that returns the lists and the events of the test in order. After the
// lists of one round, it sends the events of one stream and ends the stream.
type script struct {
	*gateway
	versions    []*berthv1.ListReservationsAnswer
	assignments []*berthv1.ListAssignmentsAnswer
	streams     []streamPart
	since       []string
}

type streamPart struct {
	events []*berthv1.Event
	end    error // nil keeps the stream open without further events
}

func newScript(t *testing.T) *script {
	s := &script{gateway: &gateway{}}
	s.list = func(q *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
		if q.GetJob() != "j" || !q.GetVersions() {
			t.Errorf("listed by %v", q)
		}
		return take(t, &s.versions), nil
	}
	s.assigned = func(q *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
		if q.GetJob() != "j" {
			t.Errorf("listed by %v", q)
		}
		return take(t, &s.assignments), nil
	}
	s.watch = func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
		s.since = append(s.since, q.GetSince())
		next := take(t, &s.streams)
		for _, event := range next.events {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		if next.end == nil {
			<-stream.Context().Done()
		}
		return next.end
	}
	s.serve(t, hold(t))
	return s
}

func take[T any](t *testing.T, list *[]T) (first T) {
	if len(*list) == 0 {
		t.Errorf("unexpected %T", first)
		return first
	}
	first, *list = (*list)[0], (*list)[1:]
	return first
}

// listed adds a round of lists with one version and its assignments.
func (s *script) listed(versions, assignments int64, r *berthv1.Reservation, workers ...*berthv1.Assignment) {
	r.Job, r.Stage, r.Name = "j", "s", "main"
	for _, a := range workers {
		a.Job, a.Stage, a.Reservation, a.Uid, a.Epoch = "j", "s", "main", r.GetUid(), r.GetEpoch()
	}
	s.versions = append(s.versions, &berthv1.ListReservationsAnswer{
		Revision: versions, Cursor: fmt.Sprint(versions), Reservations: []*berthv1.Reservation{r},
	})
	s.assignments = append(s.assignments, &berthv1.ListAssignmentsAnswer{Revision: assignments,
		Cursor: fmt.Sprint(assignments), Assignments: workers})
}

// steps reads n changes. For each change, it returns the event and the state after the
// event.
func (s *script) steps(t *testing.T, n int, opts ...Option) []string {
	t.Helper()
	var steps []string
	for change, err := range dial(t, opts, s.gateway).Watch(limited(t, time.Minute), "j") {
		if err != nil {
			t.Fatal(err)
		}
		step := "listed"
		if change.Event != nil {
			step = fmt.Sprintf("%d %v", change.Event.GetRevision(), change.Event.GetKind())
		}
		if steps = append(steps, step+":"+shownState(change.Job)); len(steps) == n {
			break
		}
	}
	return steps
}

func shownState(job *Job) string {
	var text strings.Builder
	for _, v := range job.Versions() {
		fmt.Fprintf(&text, " %s %v", v.UID, v.State)
	}
	for _, w := range job.Workers("s") {
		fmt.Fprintf(&text, ", %d.%d", w.Index, w.Number)
		if w.State != 0 {
			fmt.Fprintf(&text, " %v", w.State)
		}
		if w.Ended {
			text.WriteString(" ended")
		}
	}
	return text.String()
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

var two = []*berthv1.WorkerID{{Index: 0, Number: 1}, {Index: 1, Number: 1}}

// The two lists have different revisions. The watch follows the events from the lower
// revision, but does not undo changes that the other list already has. If a stream breaks,
// the watch continues at the same cursor.
func TestWatch(t *testing.T) {
	s := newScript(t)
	s.listed(10, 13, &berthv1.Reservation{Uid: "1-1", Epoch: 10, State: berthv1.Reservation_LEASING, Workers: two},
		&berthv1.Assignment{Index: 0, Number: 1, State: berthv1.Assignment_RUNNING, Executor: "e"},
		&berthv1.Assignment{Index: 1, Number: 1, State: berthv1.Assignment_STARTING},
	)
	s.streams = []streamPart{
		{[]*berthv1.Event{
			eventOf(11, berthv1.Event_RESERVATION_ASSIGNED, "1-1", of(0, 1, 0), of(1, 1, 0)),
			eventOf(12, berthv1.Event_WORKER_STARTED, "1-1", of(0, 1, berthv1.Assignment_STARTING)),
		}, unavailable()},
		{[]*berthv1.Event{
			eventOf(14, berthv1.Event_WORKER_LOST, "1-1", of(0, 1, berthv1.Assignment_LOST)),
			eventOf(15, berthv1.Event_WORKER_FAILED, "1-1", of(0, 1, berthv1.Assignment_FAILED),
				of(1, 1, berthv1.Assignment_FAILED)),
		}, nil},
	}
	compare(t, s.steps(t, 5), []string{
		"listed: 1-1 QUEUED, 0.1 RUNNING, 1.1 STARTING",
		"11 RESERVATION_ASSIGNED: 1-1 ACTIVE, 0.1 RUNNING, 1.1 STARTING",
		"12 WORKER_STARTED: 1-1 ACTIVE, 0.1 RUNNING, 1.1 STARTING",
		"14 WORKER_LOST: 1-1 ACTIVE, 0.1 LOST ended, 1.1 STARTING",
		"15 WORKER_FAILED: 1-1 ACTIVE, 0.1 LOST ended, 1.1 FAILED ended",
	})
	compare(t, s.since, []string{"10", "12"})
}

// If the events after the cursor were deleted, the client lists the state again. The state
// includes the effects of the deleted events.
func TestWatchAfterCompaction(t *testing.T) {
	s := newScript(t)
	s.listed(10, 10, &berthv1.Reservation{Uid: "1-1", Epoch: 10, State: berthv1.Reservation_ACTIVE, Workers: two},
		&berthv1.Assignment{Index: 0, Number: 1, State: berthv1.Assignment_RUNNING},
		&berthv1.Assignment{Index: 1, Number: 1, State: berthv1.Assignment_RUNNING},
	)
	s.listed(50, 50, &berthv1.Reservation{Uid: "1-1", Epoch: 10, State: berthv1.Reservation_COMPLETED, Workers: two})
	s.streams = []streamPart{
		{[]*berthv1.Event{eventOf(11, berthv1.Event_WORKER_LOST, "1-1", of(0, 1, berthv1.Assignment_LOST))},
			fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "gone")},
		{[]*berthv1.Event{eventOf(51, berthv1.Event_RESERVATION_QUEUED, "1-2", of(0, 2, 0))}, nil},
	}
	compare(t, s.steps(t, 4), []string{
		"listed: 1-1 ACTIVE, 0.1 RUNNING, 1.1 RUNNING",
		"11 WORKER_LOST: 1-1 ACTIVE, 0.1 LOST ended, 1.1 RUNNING",
		"listed: 1-1 COMPLETED, 0.1 LOST ended, 1.1 ended",
		"51 RESERVATION_QUEUED: 1-1 COMPLETED 1-2 QUEUED, 0.1 LOST ended, 0.2, 1.1 ended",
	})
	compare(t, s.since, []string{"10", "50"})
}

// An event about many workers does not name them, and the event of a replaced version does
// not name the successor. In both cases the client lists the state. If the list is older
// than the event, the client reads the list again.
func TestWatchListsMissingState(t *testing.T) {
	s := newScript(t)
	empty := &berthv1.Reservation{Uid: "1-0", Epoch: 1, State: berthv1.Reservation_CANCELLED}
	s.listed(10, 10, empty)
	s.listed(10, 20, empty)
	s.listed(20, 22, &berthv1.Reservation{Uid: "1-1", Epoch: 20, State: berthv1.Reservation_QUEUED, Workers: two})
	s.listed(30, 31, &berthv1.Reservation{Uid: "1-2", Epoch: 30, State: berthv1.Reservation_QUEUED, Workers: two[:1]})
	unnamed := eventOf(20, berthv1.Event_RESERVATION_QUEUED, "1-1")
	unnamed.Count = 2
	shown := eventOf(20, berthv1.Event_WORKER_ASSIGNED, "1-1")
	shown.Count = 2
	s.streams = []streamPart{{[]*berthv1.Event{unnamed, shown,
		eventOf(30, berthv1.Event_RESERVATION_REPLACED, "1-1", of(0, 1, 0), of(1, 1, 0))}, nil}}
	retries := 0
	compare(t, s.steps(t, 4, WithOnRetry(func(error) { retries++ })), []string{
		"listed: 1-0 CANCELLED",
		"20 RESERVATION_QUEUED: 1-1 QUEUED, 0.1, 1.1",
		"20 WORKER_ASSIGNED: 1-1 QUEUED, 0.1, 1.1",
		"30 RESERVATION_REPLACED: 1-2 QUEUED, 0.1",
	})
	if len(s.versions)+len(s.assignments) != 0 || retries != 1 {
		t.Errorf("%d lists not read, %d repeats", len(s.versions), retries)
	}
}

// If a list has several pages, its revision is the lowest revision of the pages.
func TestWatchReadsAllPages(t *testing.T) {
	s := newScript(t)
	s.listed(12, 20, &berthv1.Reservation{Uid: "1-1", Epoch: 8, State: berthv1.Reservation_ACTIVE, Workers: two[:1]},
		&berthv1.Assignment{Index: 0, Number: 1, State: berthv1.Assignment_RUNNING})
	s.listed(11, 20, &berthv1.Reservation{Uid: "1-2", Epoch: 9, State: berthv1.Reservation_ACTIVE, Workers: two[1:]},
		&berthv1.Assignment{Index: 1, Number: 1, State: berthv1.Assignment_RUNNING})
	s.versions[0].NextPageToken, s.assignments[0].NextPageToken = "second", "second"
	s.streams = []streamPart{{}}
	compare(t, s.steps(t, 1), []string{"listed: 1-1 ACTIVE 1-2 ACTIVE, 0.1 RUNNING, 1.1 RUNNING"})
	if len(s.versions)+len(s.assignments) != 0 {
		t.Error("a page was not read")
	}
}

// If its context ends, Watch ends without an error. If a definite error occurs, Watch ends
// with that error.
func TestWatchEnds(t *testing.T) {
	s := newScript(t)
	s.listed(10, 10, &berthv1.Reservation{Uid: "1-1"})
	s.streams = []streamPart{{nil, fault.BadField(fault.ReasonBadName, "job", "is bad")}, {}}
	c := dial(t, nil, s.gateway)
	var last error
	for _, err := range c.Watch(limited(t, time.Minute), "j") {
		last = err
	}
	if f := fault.Of(last); f == nil || f.Kind != fault.Invalid {
		t.Errorf("refused: %v", last)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.listed(10, 10, &berthv1.Reservation{Uid: "1-1"})
	steps := 0
	for _, err := range c.Watch(ctx, "j") {
		if err != nil {
			t.Error(err)
		}
		steps++
		cancel()
	}
	if steps != 1 {
		t.Errorf("%d steps", steps)
	}

	c.Close()
	for _, err := range c.Watch(t.Context(), "j") {
		last = err
	}
	if f := fault.Of(last); f == nil || f.Kind != fault.Unavailable {
		t.Errorf("closed: %v", last)
	}
}
