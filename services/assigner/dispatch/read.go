package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Assignment is one worker on one executor, as it is shown.
type Assignment struct {
	Key      model.Key
	UID      string
	Epoch    int64
	WorkerID model.WorkerID
	// Executor is empty when its record is gone.
	Executor  string
	State     model.WorkerState
	Since     time.Time
	Attempts  int32
	LastError string
	Reason    fault.Reason
	ExitCode  *int32
	// Requeued: it could not be started, and the registry queues its index again.
	Requeued bool
}

// Filter chooses assignments; a zero field chooses all.
type Filter struct {
	Job      string
	Executor string
	State    model.WorkerState
}

// Counts is how many workers are in each state.
type Counts [model.WorkerEvicted + 1]int

// Stats is what the core has to do.
type Stats struct {
	Tasks   int
	Workers Counts
	// InFlight orders are under way, Waiting ones are not.
	InFlight, Waiting int
	// Strays are workers that executors have and should not.
	Strays int
	// Creates are dispatches not answered yet.
	Creates int
}

// Assignments answers up to limit assignments in a stable order, beginning
// after the one that next named on the page before; next is empty on the last
// page. A token that was not made here is refused.
func (c *Core) Assignments(filter Filter, after string, limit int) (page []Assignment, next string, err error) {
	from, workerID, err := parseToken(after)
	if err != nil {
		return nil, "", err
	}
	first, _ := slices.BinarySearch(c.uids, from)
	for _, uid := range c.uids[first:] {
		t := c.tasks[uid]
		if !t.active() || filter.Job != "" && t.header.Key.Job != filter.Job {
			continue
		}
		for _, chunk := range t.chunks {
			for i := range size(chunk) {
				w := &chunk.Workers[i]
				if uid == from && w.ID.Compare(workerID) <= 0 || filter.State != 0 && w.State != filter.State {
					continue
				}
				executor := c.executorID(w.Ordinal)
				if filter.Executor != "" && executor != filter.Executor {
					continue
				}
				if len(page) == limit {
					last := page[limit-1]
					return page, fmt.Sprintf("%s/%d/%d", last.UID, last.WorkerID.Index, last.WorkerID.Number), nil
				}
				page = append(page, Assignment{
					Key: t.header.Key, UID: uid, Epoch: t.header.Epoch, WorkerID: w.ID, Executor: executor,
					State: w.State, Since: w.Since, Attempts: w.Attempts, LastError: w.LastError,
					Reason: w.Reason, ExitCode: w.ExitCode, Requeued: w.Requeue,
				})
			}
		}
	}
	return page, "", nil
}

func parseToken(token string) (uid string, workerID model.WorkerID, err error) {
	if token == "" {
		return "", model.WorkerID{Index: -1}, nil
	}
	uid, rest, _ := strings.Cut(token, "/")
	if _, err := fmt.Sscanf(rest, "%d/%d", &workerID.Index, &workerID.Number); err != nil {
		return "", workerID, fault.BadField(fault.ReasonInvalid, "pageToken", "is not one that was given out")
	}
	return uid, workerID, nil
}

// Counts answers how many workers of a task are in each state; none when there
// is no such task.
func (c *Core) Counts(uid string) Counts {
	if t := c.tasks[uid]; t != nil {
		return t.counts
	}
	return Counts{}
}

// Task answers a task's header and its workers in order of index, false when
// there is none.
func (c *Core) Task(uid string) (model.TaskHeader, []model.TaskWorker, bool) {
	t := c.tasks[uid]
	if t == nil || t.header == nil {
		return model.TaskHeader{}, nil, false
	}
	var workers []model.TaskWorker
	for _, chunk := range t.chunks {
		if chunk != nil {
			workers = append(workers, chunk.Workers...)
		}
	}
	return *t.header, workers, true
}

// Stats answers how much there is to do.
func (c *Core) Stats() Stats {
	s := Stats{Tasks: len(c.tasks), InFlight: len(c.flights)}
	for _, t := range c.tasks {
		for state, n := range t.counts {
			s.Workers[state] += n
		}
	}
	waits := func(o *order) {
		if o.in != nil {
			s.Waiting++
		}
	}
	for _, o := range c.orders {
		waits(o)
	}
	for _, h := range c.hosts {
		s.Strays += len(h.strays)
		for _, o := range h.strays {
			waits(o)
		}
	}
	for _, a := range c.asked {
		if !a.answered {
			s.Creates++
		}
	}
	return s
}
