package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
)

// Assignments returns the assignments that the request selects. It reads each page only
// when the loop needs it. The sequence ends at the first error.
func (c *Client) Assignments(ctx context.Context,
	request *berthv1.ListAssignmentsRequest) iter.Seq2[*berthv1.Assignment, error] {
	return items(request, func(q *berthv1.ListAssignmentsRequest, token string) ([]*berthv1.Assignment, string, error) {
		q.PageToken = token
		page, err := c.AssignmentsPage(ctx, q)
		return page.GetAssignments(), page.GetNextPageToken(), err
	})
}

// AssignmentsPage returns one page of Assignments.
func (c *Client) AssignmentsPage(ctx context.Context,
	request *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
	return invoke(ctx, c, c.assignments.ListAssignments, request)
}

// SignalWorkers sends a signal to the RUNNING workers of a stage that the request names, or to all of
// them, at most 10,000: each worker gets it in its own process. The answer lists the workers that did
// not get the signal, because they do not run, or their executor is not connected or cannot send it.
// They do not get it later. A repeat with the same RequestId sends it only to those that have not got
// it. If a worker ends because of the signal, its restart policy applies.
func (c *Client) SignalWorkers(ctx context.Context,
	request *berthv1.SignalWorkersRequest) (*berthv1.SignalWorkersAnswer, error) {
	return invoke(ctx, c, c.assignments.SignalWorkers, identified(request))
}

// ClearQuarantine declares that workers of an executor do not run, although their stop is
// overdue (the finding QUARANTINED). The workers become LOST, and their capacity is free
// at once. If the operator is wrong, the workers continue to run in addition to new
// workers on the same executor. The assignments identify the workers; use the assignments
// of a list. ClearQuarantine returns the number of workers that this call made LOST. A
// worker that has ended in the meantime is not an error. If any of the workers is not
// quarantined, the call changes nothing and returns an error.
func (c *Client) ClearQuarantine(ctx context.Context, executor string, workers ...*berthv1.Assignment) (int, error) {
	q := &berthv1.ClearQuarantineRequest{Executor: executor, RequestId: requestID()}
	for _, w := range workers {
		q.Workers = append(q.Workers, &berthv1.AssignedWorker{
			Job: w.GetJob(), Stage: w.GetStage(), Index: w.GetIndex(), Number: w.GetNumber(), Epoch: w.GetEpoch(),
		})
	}
	answer, err := invoke(ctx, c, c.assignments.ClearQuarantine, q)
	return int(answer.GetCleared()), err
}

// Leaders lists the leader of each service, and its replicas.
func (c *Client) Leaders(ctx context.Context) (*berthv1.ListLeadersAnswer, error) {
	return invoke(ctx, c, c.leaders.ListLeaders, &berthv1.ListLeadersRequest{})
}

// Resign makes the leader of a service give up its term, so that a standby leads at once.
// The call may be repeated, because it names the term. If that term is already over, the
// answer has no replica. The error is Invalid for an unknown service, and Unavailable
// while the service has no leader.
func (c *Client) Resign(ctx context.Context, service string, term int64) (*berthv1.ResignAnswer, error) {
	return invoke(ctx, c, c.leaders.Resign, &berthv1.ResignRequest{Service: service, Term: term})
}

// Findings lists the problems that an operator should know, the oldest first. If a
// service does not answer, the list has a finding of kind SERVICE_UNAVAILABLE about this
// service.
func (c *Client) Findings(ctx context.Context) (*berthv1.ListFindingsAnswer, error) {
	return invoke(ctx, c, c.findings.ListFindings, &berthv1.ListFindingsRequest{})
}

// paged is a request for one page of a list.
type paged interface {
	proto.Message
	GetPageToken() string
}

// items returns the items of the page that the request names and of all later pages.
// fetch receives a copy of the request, so that the caller's request does not change.
func items[Q paged, T any](request Q, fetch func(q Q, token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		q := proto.CloneOf(request)
		for token := q.GetPageToken(); ; {
			page, next, err := fetch(q, token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// Tenants lists the tenants with their limits and their use, ordered by name. The number of
// event streams is that of the gateway that answers.
func (c *Client) Tenants(ctx context.Context) (*berthv1.ListTenantsAnswer, error) {
	return invoke(ctx, c, c.tenants.ListTenants, &berthv1.ListTenantsRequest{})
}

// Caller returns the identity with which the gateways see this client, and the methods that
// the identity may call. It is for everybody, so a client without a role gets an answer too.
func (c *Client) Caller(ctx context.Context) (*berthv1.Caller, error) {
	return invoke(ctx, c, c.callers.GetCaller, &berthv1.GetCallerRequest{})
}

// AuditEntriesPage returns one page of the newest entries of the audit log of one gateway, the
// newest first. Each gateway has only its own entries, and the token of a page is valid only
// at the gateway that the answer names. The largest page has all entries of a gateway.
func (c *Client) AuditEntriesPage(ctx context.Context,
	request *berthv1.ListAuditEntriesRequest) (*berthv1.ListAuditEntriesAnswer, error) {
	return invoke(ctx, c, c.audit.ListAuditEntries, request)
}
