package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

// metadata is what search knows. Its file stands for a database: each change is a transaction
// that replaces the file. The cursor is a part of the transaction, so each event has its effect
// exactly once, although the manager may be killed at any time.
type metadata struct {
	mu sync.Mutex
	// Snapshots has the time at which each snapshot was created.
	Snapshots map[string]time.Time
	// Live has the node of each worker that has loaded its snapshot. Published and Removed count
	// its changes.
	Live               map[string]string
	Published, Removed int
	// Cursor is the position in the job's stream of events.
	Cursor string
	stored []byte // the file, as this process wrote it last
}

func openMetadata() *metadata {
	m := &metadata{Snapshots: map[string]time.Time{}, Live: map[string]string{}}
	if text, err := os.ReadFile(in("metadata.json")); !errors.Is(err, fs.ErrNotExist) {
		check(json.Unmarshal(must(text, err), m))
	}
	return m
}

// update makes one transaction.
func (m *metadata) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	if text := must(json.MarshalIndent(m, "", "  ")); !bytes.Equal(text, m.stored) {
		replace(in("metadata.json"), text, 0o644)
		m.stored = text
	}
}

// follow applies the events of the job.
func (m *metadata) follow(ctx context.Context, c *client.Client) {
	if m.Cursor == "" {
		m.list(ctx, c)
	}
	for ; ; m.list(ctx, c) {
		for event, err := range c.Events(ctx, job, m.Cursor) {
			if fault.Is(err, fault.ReasonEventsCompacted) || fault.Is(err, fault.ReasonInvalid) {
				break // the cursor is too old, or of another cluster
			}
			m.apply(must(event, err))
		}
	}
}

func (m *metadata) apply(event *berthv1.Event) {
	m.update(func() {
		for _, w := range event.GetWorkers() {
			worker, node := workerName(event.GetStage(), w.GetIndex(), w.GetNumber()), w.GetExecutor()
			if w.State != nil { // the event changed the worker
				m.set(worker, node, w.GetState())
			}
			if w.GetReason() == string(fault.ReasonRoundsExhausted) {
				log.Printf("GAVE UP %s, last on %s: repair or delete its object", worker, node)
			}
		}
		m.Cursor = event.GetCursor()
	})
}

// list applies a list of workers. The list may show changes whose events come after its cursor;
// these events then have no effect.
func (m *metadata) list(ctx context.Context, c *client.Client) {
	request := &berthv1.ListAssignmentsRequest{Job: job, State: berthv1.Assignment_RUNNING}
	cursor, running := must(c.AssignmentsPage(ctx, request)).GetCursor(), map[string]*berthv1.Assignment{}
	for a, err := range c.Assignments(ctx, request) {
		running[workerName(must(a, err).GetStage(), a.GetIndex(), a.GetNumber())] = a
	}
	m.update(func() {
		for worker, node := range m.Live {
			m.set(worker, node, running[worker].GetState())
		}
		for worker, a := range running {
			m.set(worker, a.GetExecutor(), a.GetState())
		}
		m.Cursor = cursor
	})
}

// set publishes a worker that is RUNNING, and removes a worker in any other state.
func (m *metadata) set(worker, node string, state berthv1.Assignment_State) {
	_, published := m.Live[worker]
	switch live := state == berthv1.Assignment_RUNNING && !strings.Contains(worker, "."+recovery+"/"); {
	case live && !published:
		m.Live[worker] = node
		m.Published++
		log.Printf("live: %s on %s", worker, node)
	case !live && published:
		delete(m.Live, worker)
		m.Removed++
		log.Printf("%s: %s on %s", state, worker, node)
	}
}

// search prints the live replicas and their nodes in descending order. It needs no manager.
func search() {
	live := openMetadata().Live
	for _, worker := range slices.Backward(slices.Sorted(maps.Keys(live))) {
		fmt.Println(worker, live[worker])
	}
}

// workerName returns the name of a worker as the command line shows it.
func workerName(stage string, index, number int32) string {
	return fmt.Sprintf("%s/%d.%d", stage, index, number)
}
