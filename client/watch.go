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
	// Event is the event. It is nil if the state was listed: at the start, and again if
	// the events in between are no longer kept.
	Event *berthv1.Event
	// Job is the state after the event. It is the same Job at every step.
	Job *Job
}

// Watch follows a job: it lists the state, then returns every event with the state
// after it. It reconnects when a gateway is lost. It misses nothing between the list
// and the first event, and the state never goes back.
//
// If the loop was slow and the next events are no longer kept, Watch lists the state
// again and returns a Change without an event. The state includes the missed events.
//
// It ends without an error when ctx ends. It ends with an error of kind Unavailable
// when the client is closed, and with any definite error, such as Invalid for a bad
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

// follow lists the state and yields every change after that, until it fails or yield
// returns false; then more is false.
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

// listing is the state of a job as two services list it, page by page, with the lowest
// revision and cursor of the pages.
type listing struct {
	versions    []*berthv1.Reservation
	stages      []*berthv1.StageWorkers
	assignments []*berthv1.Assignment
	revision    int64
	cursor      string
}

// reached lowers the revision and cursor to those of one more page.
func (l *listing) reached(revision int64, cursor string) {
	if l.cursor == "" || revision < l.revision {
		l.revision, l.cursor = revision, cursor
	}
}

// listJob lists the state of a job and returns the cursor for its next events. Lists
// may lag: it repeats a list that is older than the state.
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
		behind := fault.New(fault.Unavailable, fault.ReasonUnavailable, "the lists are of revision %d, and %d is known",
			l.revision, known)
		c.onRetry(behind)
		if !c.wait(ctx, attempt) {
			return "", c.gaveUp(ctx, behind, started)
		}
	}
}

// versionsPage is the number of versions in a page. Each may have 50,000 workers.
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
