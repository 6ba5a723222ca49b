package dispatch

import (
	"fmt"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Assignment is one worker on one executor, for clients.
type Assignment struct {
	Key   model.Key
	UID   string
	Epoch int64
	// Executor is empty if its record was deleted.
	Executor string
	model.TaskWorker
}

// Filter selects assignments. A zero field selects all.
type Filter struct {
	Job      string
	Stage    string
	Name     string // of the reservation
	Executor string
	State    model.WorkerState
}

// Counts is the number of workers in each state.
type Counts [model.WorkerEvicted + 1]int

// Stats counts the core's tasks, workers and requests.
type Stats struct {
	Tasks   int
	Workers Counts
	// InFlight counts the requests to agents in flight, Waiting the queued requests.
	InFlight, Waiting int
	// Orphans counts the orphaned workers that have a stop request.
	Orphans int
	// Creates counts the dispatches that wait for the view.
	Creates int
}

// Assignments returns up to limit assignments in a stable order. after is the next token of
// the previous page, or "" for the first page. On the last page next is empty.
func (c *Core) Assignments(filter Filter, after string, limit int) (page []Assignment, next string, err error) {
	from, workerID, err := parseToken(after)
	if err != nil {
		return nil, "", err
	}
	for uid := range c.uids.From(from) {
		t := c.tasks[uid]
		if key := t.header.Key; !t.active() || filter.Job != "" && key.Job != filter.Job ||
			filter.Stage != "" && key.Stage != filter.Stage || filter.Name != "" && key.Name != filter.Name {
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
					return page, fmt.Sprintf("%s/%d/%d", last.UID, last.ID.Index, last.ID.Number), nil
				}
				page = append(page, Assignment{Key: t.header.Key, UID: uid, Epoch: t.header.Epoch, Executor: executor,
					TaskWorker: *w})
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
		return "", workerID, fault.BadField(fault.ReasonInvalid, "pageToken", "is not a token of this list")
	}
	return uid, workerID, nil
}

// Stats returns the current counts.
func (c *Core) Stats() Stats {
	s := Stats{Tasks: len(c.tasks), InFlight: len(c.calls), Waiting: c.due.Len() + c.untilReady.Len() + c.blocked.Len(),
		Orphans: c.orphanCount}
	for _, t := range c.tasks {
		for state, n := range t.counts {
			s.Workers[state] += n
		}
	}
	for _, h := range c.hosts {
		s.Waiting += h.waiting.Len()
	}
	for _, d := range c.dispatches {
		if !d.answered {
			s.Creates++
		}
	}
	return s
}
