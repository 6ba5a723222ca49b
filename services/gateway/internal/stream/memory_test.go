package stream_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/services/gateway/internal/stream"
)

// memory is a source with the events that a test writes. Each event has a revision of its
// own.
type memory struct {
	mu     sync.Mutex
	events []*berthv1.Event
	err    error // returned after the last event
	open   error
	moved  chan struct{}
	closed chan struct{} // receives a value when a reader is closed
	paused atomic.Int64
}

func newMemory(events int) *memory {
	m := &memory{moved: make(chan struct{}), closed: make(chan struct{}, 10)}
	for range events {
		m.write()
	}
	return m
}

// flood returns a source with far more events than a connection can buffer.
func flood() *memory {
	m := newMemory(10_000)
	text := strings.Repeat("x", 8<<10)
	for _, e := range m.events {
		e.Message = &text
	}
	return m
}

// write adds an event and returns its cursor.
func (m *memory) write() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := int64(len(m.events) + 1)
	cursor := stream.Cursor{Revision: n}.String()
	m.events = append(m.events, &berthv1.Event{
		Cursor: cursor, Revision: n, Kind: berthv1.Event_WORKER_RUNNING, Uid: fmt.Sprintf("u%d", n),
	})
	m.wake()
	return cursor
}

// fail ends every stream with an error after the last event.
func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	m.wake()
}

func (m *memory) wake() {
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *memory) Open(_ context.Context, _ string, since stream.Cursor, stored bool) (stream.Reader, error) {
	if m.open != nil {
		return nil, m.open
	}
	return &memoryReader{m, int(since.Revision), stored}, nil
}

type memoryReader struct {
	m      *memory
	next   int
	stored bool
}

func (r *memoryReader) Next(ctx context.Context) ([]*berthv1.Event, error) {
	for {
		r.m.mu.Lock()
		events, err, moved := r.m.events[r.next:], r.m.err, r.m.moved
		r.m.mu.Unlock()
		switch {
		case len(events) > 0:
			r.next += len(events)
			return events, nil
		case err != nil:
			return nil, err
		case r.stored:
			return nil, io.EOF
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *memoryReader) Pause() { r.m.paused.Add(1) }

func (r *memoryReader) Close() { r.m.closed <- struct{}{} }
