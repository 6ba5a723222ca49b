package internal

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/loop/looptest"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/registry/queue"
)

// unanswered is a gateway that keeps calls until their callers give up, and tells of
// both.
type unanswered struct {
	grpc.ClientConnInterface
	asked, ended chan any
}

func (g *unanswered) Invoke(ctx context.Context, _ string, request, _ any, _ ...grpc.CallOption) error {
	g.asked <- request
	<-ctx.Done()
	g.ended <- request
	return ctx.Err()
}

// A call that another has taken the place of is given up, and the other goes on.
func TestACallThatWasOvertakenEnds(t *testing.T) {
	g := &unanswered{asked: make(chan any, 10), ended: make(chan any, 10)}
	calls := NewCalls(g, noop.NewTracerProvider().Tracer(""), slog.New(slog.DiscardHandler))
	terms := make(chan *loop.Term, 1)
	s := store.NewFake(store.FakeConfig{})
	l := looptest.Start(t, s, model.ServiceRegistry, func() *queue.Core { return queue.New(queue.Config{}) }, func(t *loop.Term, core *queue.Core, action model.Action) {
		calls.Perform(t, core, action)
		select {
		case terms <- t:
		default:
		}
	})
	if _, err := NewReservations(l).UpsertReservation(t.Context(), upsert("j", "map", "")); err != nil {
		t.Fatal(err)
	}
	first := next(t, g.asked).(*controlv1.PassRequest)
	if _, err := NewReservations(l).UpsertReservation(t.Context(), upsert("j", "reduce", "")); err != nil {
		t.Fatal(err)
	}
	looptest.Write(t, s, &model.Leader{Service: model.ServiceExecutorState, Replica: "another"})
	if ended := next(t, g.ended); ended != any(first) {
		t.Errorf("%v has ended, not %v", ended, first)
	}
	second := next(t, g.asked).(*controlv1.PassRequest)
	if second.GetPass() != first.GetPass()+1 || len(second.GetEntries()) < len(first.GetEntries()) {
		t.Errorf("after %v comes %v", first, second)
	}
	select {
	case ended := <-g.ended:
		t.Errorf("%v has ended", ended)
	default:
	}

	// The same of hand-overs.
	term := next(t, terms)
	for n := range int64(2) {
		calls.Perform(term, nil, queue.HandOver{Call: n + 1, Tasks: []queue.Task{{UID: "a"}}})
		asked := next(t, g.asked).(*controlv1.CreateTasksRequest)
		if n == 1 {
			if ended := next(t, g.ended); ended == any(asked) {
				t.Error("the newer has ended")
			}
		}
	}
}

// What an entry takes in a message is never more than its pass is told that it does.
func TestAnEntryIsNoLargerThanItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringN(0, 20, 60), rapid.Just(strings.Repeat("x", 300)))
		list := rapid.SliceOfN(text, 0, 5)
		e := queue.PassEntry{
			Key: model.Key{Job: text.Draw(t, "job"), Stage: text.Draw(t, "stage"), Name: text.Draw(t, "name")},
			UID: text.Draw(t, "uid"), Epoch: rapid.Int64().Draw(t, "epoch"), Mod: rapid.Int64().Draw(t, "mod"), Group: text.Draw(t, "group"),
			Trace: model.Trace(text.Draw(t, "trace")), Again: rapid.Bool().Draw(t, "again"),
			Constraints: constraint.Constraints{
				Resources: rapid.MapOfN(text, rapid.Int64(), 0, 5).Draw(t, "resources"), Attributes: rapid.MapOfN(text, text, 0, 5).Draw(t, "attributes"),
				SKU: text.Draw(t, "sku"), Pools: list.Draw(t, "pools"), Role: text.Draw(t, "role"), Avoid: list.Draw(t, "avoid"), AvoidFailed: list.Draw(t, "failed"),
				SameShape: true, Pack: true, Spread: constraint.Spread{By: text.Draw(t, "by"), Max: rapid.Int32Min(1).Draw(t, "max")},
			},
		}
		for range rapid.IntRange(0, 5).Draw(t, "runs") {
			e.Seats = append(e.Seats, model.Run{First: math.MaxInt32, Last: math.MaxInt32, Number: math.MaxInt32})
		}
		if size := proto.Size(&controlv1.PassRequest{Entries: []*controlv1.PassEntry{entryOf(e)}}); size > e.Bytes() {
			t.Fatalf("%d bytes, and not %d: %+v", size, e.Bytes(), e)
		}
	})
}

// The list of executors that the caller avoids, and that of Berth, which may yield, are
// sent apart.
func TestTheListsOfAvoidedExecutorsAreSentApart(t *testing.T) {
	sent := entryOf(queue.PassEntry{UID: "u", Constraints: constraint.Constraints{Avoid: []string{"caller"}, AvoidFailed: []string{"berth"}}})
	if !slices.Equal(sent.GetConstraints().GetAvoid(), []string{"caller"}) || !slices.Equal(sent.GetAvoidFailed(), []string{"berth"}) {
		t.Errorf("sent %v", sent)
	}
}

func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case one := <-from:
		return one
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
		panic("")
	}
}
