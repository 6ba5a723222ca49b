package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Members lists the members of the gang of a reservation: its workers that are placed on an
// executor, and the host of each. It reads all pages. If the request has the cursor of an
// earlier answer, Members waits until the list differs from that answer, for at most
// `waitSeconds`.
//
// A reservation that has ended or does not exist has no members.
func (c *Client) Members(ctx context.Context, request *berthv1.ListMembersRequest) (*berthv1.ListMembersAnswer,
	error) {
	for q := proto.CloneOf(request); ; {
		all, err := invoke(ctx, c, c.assignments.ListMembers, q)
		same := true
		for token := all.GetNextPageToken(); err == nil && same && token != ""; {
			q.PageToken = token
			var next *berthv1.ListMembersAnswer
			next, err = invoke(ctx, c, c.assignments.ListMembers, q)
			all.Members = append(all.Members, next.GetMembers()...)
			same, token = next.GetCursor() == all.GetCursor(), next.GetNextPageToken()
		}
		if err != nil {
			return nil, err
		}
		if same {
			all.NextPageToken = ""
			return all, nil
		}
		// The list has changed between two pages. The next one need not wait.
		q.PageToken, q.Cursor = "", ""
	}
}

// WatchMembers follows the members of the gang of a reservation: it returns the list, and
// each later list that differs from the one before. It may skip lists if they change faster
// than the loop reads them.
//
// WatchMembers continues while no gateway answers, and while the tenant of the job exceeds its
// rate of requests. It ends without an error when ctx ends, and with any definite error.
func (c *Client) WatchMembers(ctx context.Context, key Key) iter.Seq2[*berthv1.ListMembersAnswer, error] {
	return func(yield func(*berthv1.ListMembersAnswer, error) bool) {
		q := &berthv1.ListMembersRequest{Job: key.Job, Stage: key.Stage, Name: key.name()}
		for attempt := 0; ; {
			list, err := c.Members(ctx, q)
			switch {
			case err != nil && ctx.Err() != nil:
				return
			case fault.Is(err, fault.ReasonTenantLimit):
				c.onRetry(err)
				c.wait(ctx, attempt)
				attempt++
				continue
			case err != nil:
				yield(nil, err)
				return
			}
			attempt = 0
			if list.GetCursor() != q.GetCursor() && !yield(list, nil) {
				return
			}
			q.Cursor = list.GetCursor()
		}
	}
}

// SetMembers sets the members of a gang that is a part of one of another cluster, the parent. It is for the
// agent of a cell, which repeats it. It reports whether the leader knows the members with the version: if
// it does not, the request must have all fields.
func (c *Client) SetMembers(ctx context.Context, request *berthv1.SetMembersRequest) (known bool, err error) {
	answer, err := invoke(ctx, c, c.assignments.SetMembers, request)
	return answer.GetKnown(), err
}
