package internal

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
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
