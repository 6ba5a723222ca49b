package client

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// scriptedMembers is a connection that answers requests for members in order. Each answer is
// an error, or a list of members with the index 0 and this cursor and token.
type scriptedMembers struct {
	berthv1.AssignmentsClient
	t       *testing.T
	answers []any
	got     []string // cursor and token of each request
}

func (s *scriptedMembers) ListMembers(_ context.Context, q *berthv1.ListMembersRequest,
	_ ...grpc.CallOption) (*berthv1.ListMembersAnswer, error) {
	s.got = append(s.got, q.GetCursor()+"/"+q.GetPageToken())
	switch answer := take(s.t, &s.answers).(type) {
	case error:
		return nil, answer
	case [2]string:
		return &berthv1.ListMembersAnswer{Cursor: answer[0], NextPageToken: answer[1],
			Members: []*berthv1.Member{{Executor: answer[0] + answer[1]}}}, nil
	}
	return nil, nil
}

// WatchMembers returns each list once and whole: if the list changes between two pages, it
// begins again.
func TestWatchMembers(t *testing.T) {
	gone := fault.New(fault.Denied, fault.ReasonPermissionDenied, "no role")
	limited := fault.New(fault.Exhausted, fault.ReasonTenantLimit, "too many requests")
	synctest.Test(t, func(t *testing.T) {
		script := &scriptedMembers{t: t, answers: []any{
			[2]string{"a", "7"}, [2]string{"a", ""}, // two pages
			[2]string{"a", ""},                      // unchanged
			limited,                                 // repeated
			[2]string{"b", "7"}, [2]string{"c", ""}, // changed between the pages
			[2]string{"c", "7"}, [2]string{"c", ""},
			gone,
		}}
		c := &Client{assignments: script, backoff: defaultBackoff, onRetry: func(error) {}, closed: make(chan struct{})}
		var lists []string
		for list, err := range c.WatchMembers(t.Context(), Key{Job: "j", Stage: "s"}) {
			if err != nil {
				lists = append(lists, string(fault.Of(err).Reason))
				continue
			}
			text := list.GetCursor() + list.GetNextPageToken()
			for _, m := range list.GetMembers() {
				text += " " + m.GetExecutor()
			}
			lists = append(lists, text)
		}
		if want := []string{"a a7 a", "c c7 c", "PERMISSION_DENIED"}; !slices.Equal(lists, want) {
			t.Errorf("got %q, want %q", lists, want)
		}
		if want := []string{"/", "/7", "a/", "a/", "a/", "a/7", "/", "/7", "c/"}; !slices.Equal(script.got, want) {
			t.Errorf("requests %s", fmt.Sprint(script.got))
		}
	})
}
