package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// scripted is a connection that answers requests for output in order.
type scripted struct {
	berthv1.OutputsClient
	t       *testing.T
	answers []any // *berthv1.ReadOutputAnswer or error
	got     []*berthv1.ReadOutputRequest
}

func (s *scripted) ReadOutput(ctx context.Context, q *berthv1.ReadOutputRequest,
	_ ...grpc.CallOption) (*berthv1.ReadOutputAnswer, error) {
	s.got = append(s.got, proto.CloneOf(q))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	switch answer := take(s.t, &s.answers).(type) {
	case error:
		return nil, answer
	case *berthv1.ReadOutputAnswer:
		return answer, nil
	}
	return nil, nil
}

func part(offset int64, data string, end int64, complete bool) *berthv1.ReadOutputAnswer {
	return &berthv1.ReadOutputAnswer{Executor: "e", Number: 2, Epoch: 7, Offset: offset, Data: []byte(data), End: end,
		Complete: complete}
}

// Output follows one worker from part to part, over pauses and repeats, and ends where it
// promises.
func TestOutput(t *testing.T) {
	unreachable := fault.New(fault.Unavailable, fault.ReasonExecutorUnreachable, "not connected")
	limited := fault.New(fault.Exhausted, fault.ReasonTenantLimit, "too many requests")
	gone := fault.New(fault.NotFound, fault.ReasonNotFound, "no output")
	for _, c := range []struct {
		name    string
		follow  bool
		answers []any
		want    string // offset:data of each part
		err     fault.Reason
		retries int
	}{
		{"one part", false, []any{part(3, "abc", 6, false)}, "3:abc", "", 0},
		{"nothing", false, []any{part(0, "", 0, false)}, "0:", "", 0},
		{"the end when it began", false, []any{part(3, "abc", 8, false), part(6, "de", 12, false)}, "3:abc 6:de", "", 0},
		{"complete", true, []any{part(3, "abc", 6, true)}, "3:abc", "", 0},
		{"follows", true, []any{part(3, "abc", 6, false), part(6, "", 6, false), part(6, "d", 7, false),
			part(7, "", 7, true)}, "3:abc 6: 6:d 7:", "", 0},
		{"removed output", true, []any{part(3, "a", 4, false), part(100, "b", 101, true)}, "3:a 100:b", "", 0},
		{"repeats", true, []any{unreachable, part(3, "a", 4, false), unreachable, unreachable, part(4, "b", 5, true)},
			"3:a 4:b", "", 3},
		{"a limited tenant", true, []any{part(3, "a", 4, false), limited, limited, part(4, "b", 5, true)}, "3:a 4:b", "", 2},
		{"a limited tenant at first", true, []any{limited}, "", fault.ReasonTenantLimit, 0},
		{"no output", true, []any{part(3, "a", 4, false), gone}, "3:a", fault.ReasonNotFound, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				retries := 0
				s := &scripted{t: t, answers: c.answers}
				client := &Client{closed: make(chan struct{}), backoff: defaultBackoff, outputs: s,
					onRetry: func(error) { retries++ }}
				request := &berthv1.ReadOutputRequest{Job: "j", Stage: "s", Tail: proto.Int32(9), Follow: c.follow}
				var got []string
				var failed error
				for part, err := range client.Output(t.Context(), request) {
					if failed = err; err == nil {
						got = append(got, fmt.Sprintf("%d:%s", part.GetOffset(), part.GetData()))
					}
				}
				if strings.Join(got, " ") != c.want || (failed != nil) != (c.err != "") || failed != nil &&
					!fault.Is(failed, c.err) || retries != c.retries || len(s.answers) > 0 {
					t.Errorf("got %q, %v after %d repeats, left %d", got, failed, retries, len(s.answers))
				}
				first := &berthv1.ReadOutputRequest{Job: "j", Stage: "s", Tail: proto.Int32(9), Follow: c.follow}
				if !proto.Equal(s.got[0], first) || !proto.Equal(request, first) {
					t.Errorf("first request %v, request of the caller %v", s.got[0], request)
				}
				for _, q := range s.got[1:] {
					if q.Tail == nil && (q.GetExecutor() != "e" || q.GetNumber() != 2 || q.GetEpoch() != 7 || q.GetOffset() < 4) {
						t.Errorf("further request %v", q)
					}
				}
			})
		})
	}
}

// When ctx ends, a reader that follows ends without an error. Another reader ends with one.
func TestOutputEndsWithTheContext(t *testing.T) {
	for _, follow := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{t: t, answers: []any{part(0, "", 1, false)}}
			client := &Client{closed: make(chan struct{}), backoff: defaultBackoff, outputs: s, onRetry: func(error) {}}
			ctx, cancel := context.WithTimeout(t.Context(), quietPause/2)
			defer cancel()
			started, parts := time.Now(), 0
			var failed error
			for _, err := range client.Output(ctx, &berthv1.ReadOutputRequest{Follow: follow}) {
				parts++
				failed = err
			}
			if (failed == nil) != follow || follow && parts != 1 || time.Since(started) > quietPause {
				t.Errorf("follow %v: %d parts, %v after %v", follow, parts, failed, time.Since(started))
			}
		})
	}
}
