package client

import (
	"context"
	"iter"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Change is one step of a Watch.
type Change struct {
	// Event is what happened. It is nil where the state was listed: once at the
	// start, and again where events between are no longer kept.
	Event *berthv1.Event
	// Job is the state after it, the same one at every step.
	Job *Job
}

// Watch follows a job: its state as it is listed, then every event with the
// state after it. It comes back by itself when a gateway goes. Nothing between
// the list and the first event is missed, and the state never goes back.
//
// When the events it would go on from are no longer kept, because whoever ranges
// over it was away for long, it lists the state anew and says so by a Change
// without an event: what those events told of is then seen in the state alone.
//
// It ends without an error when ctx ends, with one of kind Unavailable when the
// client is closed, and with what else is definite, such as Invalid for a bad
// name.
func (c *Client) Watch(ctx context.Context, job string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		state := newJob(job)
		for attempt := 0; ; attempt++ {
			more, err := c.follow(ctx, state, func(change Change) bool {
				if change.Event != nil {
					attempt = 0
				}
				return yield(change, nil)
			})
			if !more || ctx.Err() != nil {
				return
			}
			if !fault.Is(err, fault.ReasonEventsCompacted) {
				yield(Change{}, err)
				return
			}
			c.onRetry(err)
			if !c.wait(ctx, attempt) {
				if ctx.Err() == nil {
					yield(Change{}, c.gaveUp(ctx, fault.Of(err), time.Now()))
				}
				return
			}
		}
	}
}

// follow lists the state and gives every change after that, until it cannot go
// on or the one who listens has had enough: then there is no more to give.
func (c *Client) follow(ctx context.Context, state *Job, give func(Change) bool) (more bool, err error) {
	cursor, err := c.listJob(ctx, state)
	if err != nil {
		return true, err
	}
	if !give(Change{Job: state}) {
		return false, nil
	}
	for event, err := range c.Events(ctx, state.name, cursor) {
		if err != nil {
			return true, err
		}
		if whole := state.apply(event, time.Now()); !whole {
			if _, err := c.listJob(ctx, state); err != nil {
				return true, err
			}
		}
		if !give(Change{Event: event, Job: state}) {
			return false, nil
		}
	}
	return false, nil
}

// listing is the state of a job as two services list it, page by page, with the
// revision and the cursor that all of it has reached.
type listing struct {
	versions    []*berthv1.Reservation
	stages      []*berthv1.StageWorkers
	assignments []*berthv1.Assignment
	revision    int64
	cursor      string
}

// reached lowers the revision to that of one more page.
func (l *listing) reached(revision int64, cursor string) {
	if l.cursor == "" || revision < l.revision {
		l.revision, l.cursor = revision, cursor
	}
}

// listJob lists the state of a job anew and answers the cursor to follow its
// events from. Lists may lag: one that is older than the state is read again.
func (c *Client) listJob(ctx context.Context, job *Job) (cursor string, err error) {
	started := time.Now()
	for attempt := 0; ; attempt++ {
		l, err := c.readJob(ctx, job.name)
		if err != nil {
			return "", err
		}
		known := job.Revision()
		if l.revision >= known {
			job.take(l, time.Now())
			return l.cursor, nil
		}
		behind := fault.New(fault.Unavailable, fault.ReasonUnavailable, "the lists are of revision %d, and %d is known", l.revision, known)
		c.onRetry(behind)
		if !c.wait(ctx, attempt) {
			return "", c.gaveUp(ctx, behind, started)
		}
	}
}

// versionsPage is how many versions are asked for at once: each may have 50,000
// workers.
const versionsPage = 100

func (c *Client) readJob(ctx context.Context, job string) (*listing, error) {
	l := &listing{}
	versions := &berthv1.ListReservationsRequest{Job: job, Versions: true, PageSize: versionsPage}
	for more := true; more; more = versions.PageToken != "" {
		page, err := c.ListPage(ctx, versions)
		if err != nil {
			return nil, err
		}
		l.versions = append(l.versions, page.GetReservations()...)
		l.stages = append(l.stages, page.GetStages()...)
		l.reached(page.GetRevision(), page.GetCursor())
		versions.PageToken = page.GetNextPageToken()
	}
	assignments := &berthv1.ListAssignmentsRequest{Job: job, PageSize: 1000}
	for more := true; more; more = assignments.PageToken != "" {
		page, err := c.AssignmentsPage(ctx, assignments)
		if err != nil {
			return nil, err
		}
		l.assignments = append(l.assignments, page.GetAssignments()...)
		l.reached(page.GetRevision(), page.GetCursor())
		assignments.PageToken = page.GetNextPageToken()
	}
	return l, nil
}
