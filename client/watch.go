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
	// Event is the event. It is nil if Watch listed the state: at the start, and each time
	// that events were deleted before Watch received them.
	Event *berthv1.Event
	// Job is the state after the event. Every Change of a Watch has the same Job.
	Job *Job
}

// Watch follows a job: it lists the state, and then returns every event with the state
// after the event. It reconnects when the connection to a gateway is lost. It misses no
// change between the list and the first event, and the state never goes back.
//
// If the loop is so slow that the next events were deleted, Watch lists the state again
// and returns a Change without an event. The state includes the missed events.
//
// Watch ends without an error when ctx ends. It ends with an error of kind Unavailable
// when the client is closed, and with any definite error, such as Invalid for an invalid
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

// follow lists the state and yields every change after the list. It returns an error and
// true if the list or the stream fails. It returns false if yield returned false or ctx
// has ended.
func (c *Client) follow(ctx context.Context, state *Job, yield func(Change) bool) (more bool, err error) {
	cursor, err := c.listJob(ctx, state)
	if err != nil {
		return true, err
	}
	if !yield(Change{Job: state}) {
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
		if !yield(Change{Event: event, Job: state}) {
			return false, nil
		}
	}
	return false, nil
}

// listing is the state of a job as registry and assigner list it, page by page. revision
// and cursor are the lowest of all pages.
type listing struct {
	versions    []*berthv1.Reservation
	stages      []*berthv1.StageWorkers
	assignments []*berthv1.Assignment
	revision    int64
	cursor      string
}

// reached sets revision and cursor to the values of another page, if its revision is
// lower.
func (l *listing) reached(revision int64, cursor string) {
	if l.cursor == "" || revision < l.revision {
		l.revision, l.cursor = revision, cursor
	}
}

// listJob lists the state of a job and returns the cursor for the next events. If a list
// is older than the state that the Job already has, it lists again.
func (c *Client) listJob(ctx context.Context, job *Job) (cursor string, err error) {
	started := time.Now()
	for attempt := 0; ; attempt++ {
		l, err := c.readJob(ctx, job.name)
		if err != nil {
			return "", err
		}
		known := job.Revision()
		if l.revision >= known {
			job.replace(l, time.Now())
			return l.cursor, nil
		}
		behind := fault.New(fault.Unavailable, fault.ReasonUnavailable, "the lists have revision %d, but revision %d is known",
			l.revision, known)
		c.onRetry(behind)
		if !c.wait(ctx, attempt) {
			return "", c.gaveUp(ctx, behind, started)
		}
	}
}

// versionsPage is the number of versions in a page. It is low because each version may
// have 50,000 workers.
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
