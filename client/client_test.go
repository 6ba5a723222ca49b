package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestDialRefuses(t *testing.T) {
	for _, addresses := range [][]string{nil, {""}, {"127.0.0.1:1", "host"}} {
		if _, err := Dial(addresses); fault.Of(err) == nil || fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%q: %v", addresses, err)
		}
	}
}

// If the outcome of a call is open, the client repeats the call with the same request ID.
func TestRepeats(t *testing.T) {
	var ids []string
	g := &gateway{upsert: func(q *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
		ids = append(ids, q.RequestId)
		if len(ids) < 4 {
			return nil, unavailable()
		}
		return &berthv1.Reservation{Uid: "1-1"}, nil
	}}
	g.serve(t, hold(t))
	retries := 0
	c := dial(t, []Option{WithOnRetry(func(error) { retries++ })}, g)

	r, err := c.Reserve(limited(t, time.Minute), &berthv1.Reservation{Job: "a", Stage: "b"})
	if err != nil || r.GetUid() != "1-1" {
		t.Fatalf("%v, %v", r, err)
	}
	if len(ids) != 4 || ids[0] == "" || len(slices.Compact(ids)) != 1 {
		t.Errorf("request ids %q", ids)
	}
	if retries != 3 {
		t.Errorf("OnRetry was called for %d repeats, want 3", retries)
	}
}

// A gateway may end a call a moment before the deadline of its context. That is no failure which
// OnRetry reports. If the context lasts, it is one.
func TestTheDeadlineOfACallIsNoFailure(t *testing.T) {
	for limit, want := range map[time.Duration]int{200 * time.Millisecond: 0, time.Minute: 1, 0: 1} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if limit > 0 {
				ctx = limited(t, limit)
			}
			calls, reported := 0, 0
			get := func(context.Context, *berthv1.GetReservationRequest, ...grpc.CallOption) (*berthv1.Reservation, error) {
				if calls++; calls == 1 {
					return nil, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
				}
				return nil, nil
			}
			c := &Client{closed: make(chan struct{}), backoff: backoff{first: 1, most: 1}, onRetry: func(error) { reported++ }}
			if _, err := invoke(ctx, c, get, &berthv1.GetReservationRequest{}); err != nil || calls != 2 || reported != want {
				t.Errorf("deadline in %v: %d calls, %d reports, %v", limit, calls, reported, err)
			}
		})
	}
}

// The registry forgets request IDs after some time, and a later copy of a call would be a
// new call. The client therefore stops repeating a call before that, even if the context of
// the call lasts longer. A read is repeated until its context ends.
func TestACallIsNotRepeatedAfterItsRequestIDMayBeForgotten(t *testing.T) {
	var deadline time.Time
	var has bool
	begun := time.Now()
	upsert := func(ctx context.Context, _ *berthv1.UpsertReservationRequest, _ ...grpc.CallOption) (*berthv1.Reservation,
		error) {
		deadline, has = ctx.Deadline()
		return nil, nil
	}
	if _, err := invoke(t.Context(), &Client{}, upsert, &berthv1.UpsertReservationRequest{RequestId: "r"}); err != nil {
		t.Fatal(err)
	}
	// The gateway with the last copy may also delay that copy until half of the time has
	// passed.
	if left := deadline.Sub(begun); !has || left < time.Minute || left > KeepEnded/2+time.Minute {
		t.Errorf("an upsert is repeated for %v", left)
	}
	get := func(ctx context.Context, _ *berthv1.GetReservationRequest, _ ...grpc.CallOption) (*berthv1.Reservation,
		error) {
		deadline, has = ctx.Deadline()
		return nil, nil
	}
	if _, err := invoke(t.Context(), &Client{}, get, &berthv1.GetReservationRequest{}); err != nil || has {
		t.Errorf("a read is repeated until %v, %v", deadline, err)
	}
}

// The request ID and the epoch of the caller are sent in addition to the body. The client
// does not change the body.
func TestUpsertRequest(t *testing.T) {
	var sent *berthv1.UpsertReservationRequest
	g := &gateway{upsert: func(q *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
		sent = q
		return q.Reservation, nil
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	body := &berthv1.Reservation{Job: "a", Stage: "b", Count: 2, RequestId: proto.String("mine"), IfEpoch: proto.Int64(7)}
	before := proto.CloneOf(body)
	if _, err := c.Reserve(limited(t, time.Minute), body); err != nil {
		t.Fatal(err)
	}
	want := &berthv1.UpsertReservationRequest{
		Reservation: &berthv1.Reservation{Job: "a", Stage: "b", Count: 2}, RequestId: "mine", IfEpoch: 7,
	}
	if !proto.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	if !proto.Equal(body, before) {
		t.Errorf("the caller's message was changed to %v", body)
	}
}

// A definite refusal is returned at once with its reason and its fields.
func TestDefiniteErrors(t *testing.T) {
	calls := 0
	g := &gateway{cancel: func(q *berthv1.CancelReservationRequest) (*berthv1.CancelAnswer, error) {
		calls++
		return nil, fault.BadField(fault.ReasonBadName, "stage", "%s %s %v", q.Name, "is bad", q.IfEpoch)
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	_, err := c.CancelVersion(limited(t, time.Minute), Key{Job: "a", Stage: "b"}, 12)
	f := fault.Of(err)
	want := []fault.Field{{Name: "stage", Problem: "main is bad 12"}}
	if f == nil || f.Kind != fault.Invalid || f.Reason != fault.ReasonBadName || !slices.Equal(f.Fields, want) {
		t.Errorf("got %#v", f)
	}
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}

// If the outcome of a call is still open when its context ends, the error says so and has
// the cause.
func TestRetriesEndWithTheContext(t *testing.T) {
	g := &gateway{get: func(*berthv1.GetReservationRequest) (*berthv1.Reservation, error) { return nil, unavailable() }}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	_, err := c.Get(limited(t, 2*time.Second), Key{Job: "a", Stage: "b"})
	f := fault.Of(err)
	if f == nil || f.Kind != fault.Unavailable || f.Meta["gateways"] != g.address ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %#v", err)
	}
	if last := fault.Of(f.Cause); last.Message != "no leader" {
		t.Errorf("the last attempt's error is %q", last.Message)
	}
}

// If an address accepts connections but sends nothing, the error does not use the words of
// the network library.
func TestSilentGateway(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, stop := context.WithCancel(t.Context())
	var retried error
	c, err := Dial([]string{silent.Addr().String()}, WithOnRetry(func(err error) {
		retried = err
		stop()
	}), WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 100 * time.Millisecond})))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Get(ctx, Key{Job: "a", Stage: "b"})
	want := fmt.Sprintf("the gateway at %s did not answer in time", silent.Addr())
	for _, f := range []*fault.Error{fault.Of(retried), fault.Of(fault.Of(err).Cause)} {
		if f == nil || f.Kind != fault.Unavailable || f.Message != want {
			t.Errorf("got %v, want %q", f, want)
		}
	}
}

// The same holds if the caller gives up before gRPC closes the connection.
func TestSilentGatewayWithAShortDeadline(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := Dial([]string{silent.Addr().String()},
		WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute})))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// If a call ends before gRPC starts to connect, it fails with another message.
	for patience := 10 * time.Millisecond; ; patience *= 4 {
		_, err = c.Get(limited(t, patience), Key{Job: "a", Stage: "b"})
		f := fault.Of(err)
		if last := fault.Of(f.Cause); f.Kind == fault.Unavailable && errors.Is(err, context.DeadlineExceeded) &&
			last.Message == "no gateway answered in time" {
			break
		}
		if patience > 5*time.Second {
			t.Fatalf("got %v, because of %v", err, f.Cause)
		}
	}
}

func TestClosedClientEndsItsCalls(t *testing.T) {
	g := &gateway{}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Get(t.Context(), Key{Job: "a", Stage: "b"})
	if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable || f.Message != "the client was closed" {
		t.Errorf("call: %v", err)
	}
	for _, err := range c.Events(t.Context(), "a", "") {
		if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable {
			t.Errorf("stream: %v", err)
		}
	}
}

// While one of two gateways is down, no call fails. While both are down, calls wait
// until one returns.
func TestGatewaysRestart(t *testing.T) {
	answer := func(*berthv1.GetReservationRequest) (*berthv1.Reservation, error) { return &berthv1.Reservation{}, nil }
	one, two := &gateway{get: answer}, &gateway{get: answer}
	one.serve(t, hold(t))
	two.serve(t, hold(t))
	tried := make(chan struct{}, 1)
	c := dial(t, []Option{WithOnRetry(func(error) {
		select {
		case tried <- struct{}{}:
		default:
		}
	})}, one, two)
	ctx := limited(t, time.Minute)
	get := func() error {
		_, err := c.Get(ctx, Key{Job: "a", Stage: "b"})
		return err
	}
	for range 4 {
		if err := get(); err != nil {
			t.Fatal(err)
		}
	}
	one.stop()
	for range 4 {
		if err := get(); err != nil {
			t.Fatalf("with one gateway down: %v", err)
		}
	}
	two.stop()
	for len(tried) > 0 {
		<-tried
	}
	done := make(chan error)
	go func() { done <- get() }()
	<-tried
	two.serve(t, two.address)
	if err := <-done; err != nil {
		t.Errorf("after one gateway returned: %v", err)
	}
}

func TestListFollowsPages(t *testing.T) {
	const items = 7
	failAt := -1
	g := &gateway{list: func(q *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
		from := 0
		fmt.Sscan(q.PageToken, &from) //nolint:errcheck // empty at first
		if from == failAt {
			return nil, fault.New(fault.OutOfRange, fault.ReasonInvalid, "unknown page token")
		}
		answer := &berthv1.ListReservationsAnswer{}
		for i := from; i < min(from+3, items); i++ {
			answer.Reservations = append(answer.Reservations, &berthv1.Reservation{Job: q.Job, Name: fmt.Sprint(i)})
		}
		if from+3 < items {
			answer.NextPageToken = fmt.Sprint(from + 3)
		}
		return answer, nil
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	collect := func(most int) (names []string, last error) {
		request := &berthv1.ListReservationsRequest{Job: "a", PageSize: 3}
		for r, err := range c.List(limited(t, time.Minute), request) {
			if err != nil {
				return names, err
			}
			if names = append(names, r.Name); len(names) == most {
				break
			}
		}
		if request.PageToken != "" {
			t.Errorf("the caller's request was changed to %v", request)
		}
		return names, nil
	}
	all := []string{"0", "1", "2", "3", "4", "5", "6"}
	if names, err := collect(-1); err != nil || !slices.Equal(names, all) {
		t.Errorf("%q, %v", names, err)
	}
	if names, err := collect(4); err != nil || !slices.Equal(names, all[:4]) {
		t.Errorf("%q, %v", names, err)
	}
	failAt = 3
	if names, err := collect(-1); fault.Of(err).Kind != fault.OutOfRange || !slices.Equal(names, all[:3]) {
		t.Errorf("%q, %v", names, err)
	}
}

// Pending merges all pages, and returns no list if one page is missing.
func TestPendingMergesPages(t *testing.T) {
	broken := ""
	g := &gateway{any: func(_ string, request proto.Message) (proto.Message, error) {
		q := request.(*berthv1.ListPendingRequest)
		if broken != "" && q.PageToken == broken {
			return nil, fault.New(fault.OutOfRange, fault.ReasonInvalid, "unknown page token")
		}
		next := map[string]string{"": "g1", "g1": "g2", "g2": ""}[q.PageToken]
		return &berthv1.ListPendingAnswer{Ready: true, Groups: []*berthv1.PendingGroup{{Id: "after " + q.PageToken}},
			NextPageToken: next, TotalGroups: 3}, nil
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	all, err := c.Pending(limited(t, time.Minute))
	if err != nil || len(all.GetGroups()) != 3 || all.GetGroups()[2].GetId() != "after g2" ||
		all.GetNextPageToken() != "" || all.GetTotalGroups() != 3 {
		t.Errorf("%v, %v", all, err)
	}
	broken = "g2"
	if all, err := c.Pending(limited(t, time.Minute)); fault.Of(err).Kind != fault.OutOfRange || all != nil {
		t.Errorf("%v, %v", all, err)
	}
}

// If a stream breaks repeatedly, the client still returns every event exactly once.
func TestEventsResume(t *testing.T) {
	events := newLog()
	for range 9 {
		events.add()
	}
	var cursors []string
	ends := []error{unavailable(), nil, fault.New(fault.Exhausted, fault.ReasonSlowReader, "too slow")}
	g := &gateway{watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
		cursors = append(cursors, q.Since)
		if len(cursors) > len(ends) {
			return events.follow(q.Since, stream, -1, nil)
		}
		return events.follow(q.Since, stream, 2, ends[len(cursors)-1])
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	stream := c.Events(limited(t, time.Minute), "a", "1")
	for round := range 2 {
		var got []string
		for e, err := range stream {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e.Cursor); len(got) == 8 {
				break
			}
		}
		if want := []string{"2", "3", "4", "5", "6", "7", "8", "9"}; !slices.Equal(got, want) {
			t.Errorf("round %d: got %q", round, got)
		}
	}
	// The second loop starts at the same cursor as the first loop.
	if want := []string{"1", "3", "5", "7", "1"}; !slices.Equal(cursors, want) {
		t.Errorf("cursors %q, want %q", cursors, want)
	}
}

// After a lost connection, the gateway may still count the lost stream of this reader, so
// the client repeats. A reader that never had a stream gets the error.
func TestEventsResumeAtTheLimitOfTheTenant(t *testing.T) {
	events := newLog()
	for range 4 {
		events.add()
	}
	calls := 0
	limit := fault.New(fault.Exhausted, fault.ReasonTenantLimit, "too many streams")
	g := &gateway{watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
		switch calls++; {
		case q.Job == "b", calls == 2:
			return limit
		case calls == 1:
			return events.follow(q.Since, stream, 2, unavailable())
		}
		return events.follow(q.Since, stream, -1, nil)
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	var got []string
	for e, err := range c.Events(limited(t, time.Minute), "a", "") {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Cursor); len(got) == 4 {
			break
		}
	}
	if want := []string{"1", "2", "3", "4"}; !slices.Equal(got, want) || calls != 3 {
		t.Errorf("got %q with %d calls", got, calls)
	}
	var errs []error
	for _, err := range c.Events(limited(t, time.Minute), "b", "") {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !fault.Is(errs[0], fault.ReasonTenantLimit) {
		t.Errorf("errors %v", errs)
	}
}

func TestEventsEndWithADefiniteError(t *testing.T) {
	g := &gateway{watch: func(*berthv1.WatchEventsRequest, grpc.ServerStreamingServer[berthv1.Event]) error {
		return fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "gone").With("cursor", "9.0")
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	var errs []error
	for e, err := range c.Events(limited(t, time.Minute), "a", "1.0") {
		if e != nil {
			t.Errorf("event: %v", e)
		}
		errs = append(errs, err)
	}
	if len(errs) != 1 || !fault.Is(errs[0], fault.ReasonEventsCompacted) || fault.Of(errs[0]).Meta["cursor"] != "9.0" {
		t.Errorf("errors %v", errs)
	}
}

func TestEventsEndWithTheContext(t *testing.T) {
	events := newLog()
	events.add()
	g := &gateway{watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
		return events.follow(q.Since, stream, -1, nil)
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	count := 0
	for _, err := range c.Events(ctx, "a", "") {
		if err != nil {
			t.Fatal(err)
		}
		count++
		cancel()
	}
	if count != 1 {
		t.Errorf("%d events", count)
	}
}

// Events wake WaitFor. Without them, its own polling would be too slow for this test.
func TestWaitFor(t *testing.T) {
	events := newLog()
	states := make(chan berthv1.Reservation_State, 1)
	reads := make(chan struct{}, 100)
	var state berthv1.Reservation_State
	g := &gateway{
		get: func(*berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
			select {
			case state = <-states:
			default:
			}
			reads <- struct{}{}
			return &berthv1.Reservation{Uid: "1-1", State: state, Reason: proto.String("QUEUE_TIMEOUT")}, nil
		},
		watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
			return events.follow(q.Since, stream, -1, nil)
		},
	}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	wait := func(first, then berthv1.Reservation_State) (*berthv1.Reservation, error) {
		states <- first
		go func() {
			<-reads
			states <- then
			events.add()
		}()
		return c.WaitFor(limited(t, waitPoll-time.Second), Key{Job: "a", Stage: "b"}, berthv1.Reservation_ACTIVE)
	}

	r, err := wait(berthv1.Reservation_QUEUED, berthv1.Reservation_ACTIVE)
	if err != nil || r.GetUid() != "1-1" {
		t.Fatalf("reached: %v, %v", r, err)
	}
	for len(reads) > 0 {
		<-reads
	}
	r, err = wait(berthv1.Reservation_QUEUED, berthv1.Reservation_EXPIRED)
	if f := fault.Of(err); f == nil || f.Kind != fault.Precondition || f.Reason != fault.ReasonQueueTimeout ||
		r.GetState() != berthv1.Reservation_EXPIRED {
		t.Errorf("ended with another state: %v, %v", r, err)
	}
}

// An event may reach the client before the registry sees the change. WaitFor then reads again soon.
func TestWaitForReadsAgain(t *testing.T) {
	events := newLog()
	var reads atomic.Int32
	g := &gateway{
		get: func(*berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
			switch reads.Add(1) {
			case 1:
				events.add()
				return &berthv1.Reservation{State: berthv1.Reservation_OFFERING, Hold: berthv1.Hold_HOLD.Enum()}, nil
			case 2, 3:
				return &berthv1.Reservation{State: berthv1.Reservation_OFFERING, Hold: berthv1.Hold_HOLD.Enum()}, nil
			}
			return &berthv1.Reservation{State: berthv1.Reservation_HELD}, nil
		},
		watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
			return events.follow(q.Since, stream, -1, nil)
		},
	}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	_, err := c.WaitFor(limited(t, waitPoll-time.Second), Key{Job: "a", Stage: "b"}, berthv1.Reservation_HELD)
	if err != nil {
		t.Errorf("after %d reads: %v", reads.Load(), err)
	}
}

func TestWaitForEndsWithAnError(t *testing.T) {
	g := &gateway{
		get: func(*berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
			return &berthv1.Reservation{State: berthv1.Reservation_QUEUED}, nil
		},
		watch: func(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
			return newLog().follow(q.Since, stream, -1, nil)
		},
	}
	g.serve(t, hold(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The context ends once the reservation has been read.
	read := func(ctx context.Context, method string, q, a any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		err := call(ctx, method, q, a, conn, opts...)
		if err == nil && method == berthv1.Reservations_GetReservation_FullMethodName {
			cancel()
		}
		return err
	}
	c := dial(t, []Option{WithDialOptions(grpc.WithChainUnaryInterceptor(read))}, g)
	r, err := c.WaitFor(ctx, Key{Job: "a", Stage: "b"}, berthv1.Reservation_ACTIVE)
	if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable || !errors.Is(err, context.Canceled) ||
		r.GetState() != berthv1.Reservation_QUEUED {
		t.Errorf("%v, %v", r, err)
	}
}

func TestPausesGrowAndVary(t *testing.T) {
	b := defaultBackoff
	for attempt := range 100 {
		longest := b.most
		if attempt < 6 {
			longest = min(b.most, b.first<<attempt)
		}
		if d := b.pause(attempt); d < longest/2-1 || d > longest {
			t.Errorf("attempt %d: %v, want %v to %v", attempt, d, longest/2, longest)
		}
	}
}

// A gateway is an address or a URL. If it is invalid, the error names the remedy.
func TestAddressesOfGateways(t *testing.T) {
	security := &tls.Config{}
	for _, c := range []struct {
		gateway  string
		security *tls.Config
		want     string
	}{
		{"127.0.0.1:8080", nil, "127.0.0.1:8080"}, {" [::1]:8080", nil, "[::1]:8080"},
		{"http://127.0.0.1:8080", nil, "127.0.0.1:8080"}, {"http://gateway:8080/", nil, "gateway:8080"},
		{"https://gateway:8443", security, "gateway:8443"}, {"gateway:8443", security, "gateway:8443"},
		{"https://gateway", security, "gateway:443"}, {"http://[::1]/", nil, "[::1]:80"},
		{"https://example.com/berth/", security, "example.com:443/berth"},
		{"http://gateway:8080/tools/berth", nil, "gateway:8080/tools/berth"},
		{"gateway:8080/berth", nil, "gateway:8080/berth"},
	} {
		got, err := Addresses([]string{c.gateway}, c.security)
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%q: %v, %v; want %s", c.gateway, got, err, c.want)
		}
	}
	for _, c := range []struct {
		gateway  string
		security *tls.Config
		want     string
	}{
		{"https://gateway:8443", nil, "needs TLS"}, {"http://gateway:8080", security, "without TLS"},
		{"ftp://gateway:1", nil, "must be host:port"}, {"gateway", nil, "must be host:port"},
		{"http://", nil, "must be host:port"}, {"http://gateway:", nil, "must be host:port"},
		{"http:///berth", nil, "must be host:port"}, {"gateway/berth", nil, "must be host:port"},
		{"http://gateway:1/v1", nil, "must not begin with /v1"}, {"gateway:", nil, "must be host:port"},
		{"http://gateway:1/a b", nil, "must be a path such as /berth"}, {"http://gateway:1//a", nil, "must be a path"},
		{"http://gateway:1/a?b=c", nil, "must be a path"},
		{"", nil, "must be host:port"},
	} {
		_, err := Addresses([]string{c.gateway}, c.security)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || !strings.Contains(f.Message, c.want) {
			t.Errorf("%q: %v, want %s", c.gateway, err, c.want)
		}
	}
}
