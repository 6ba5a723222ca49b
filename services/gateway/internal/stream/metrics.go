package stream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// metrics are the metrics of a server's streams.
type metrics struct {
	mu   sync.Mutex
	open int
	sent uint64
	lag  model.Histogram
	// ended counts ended and rejected streams by reason.
	ended map[string]uint64
}

// readerGone is the reason of a stream that ended without an error.
const readerGone = "READER_GONE"

// opened counts a new stream. If the maximum number of streams is open already, it returns
// false and counts nothing.
func (m *metrics) opened(most int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open >= most {
		return false
	}
	m.open++
	return true
}

// closed counts the end of an open stream.
func (m *metrics) closed(cause error) {
	m.mu.Lock()
	m.open--
	m.mu.Unlock()
	m.rejected(cause)
}

// rejected counts a stream that ended or was refused, by the reason in cause. Without a
// cause, the reader disconnected.
func (m *metrics) rejected(cause error) {
	reason := readerGone
	if cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		reason = string(fault.Of(cause).Reason)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended == nil {
		m.ended = map[string]uint64{}
	}
	m.ended[reason]++
}

// sentEvent counts a sent event. It observes the lag only of an event that happened while
// the stream was open, because older events were stored.
func (m *metrics) sentEvent(f *follower, e *berthv1.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent++
	if at := e.GetTime().AsTime(); at.After(f.opened) {
		m.lag.Observe(time.Since(at))
	}
}

const prefix = "berth_gateway_"

// Metrics writes the metrics of the server's streams.
func (s *Server) Metrics(f process.Scrape) {
	m := &s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	f.Gauge(prefix+"event_streams", "streams of job events that are open", float64(m.open))
	f.Counter(prefix+"events_sent_total", "job events sent to readers", m.sent)
	f.Histogram(prefix+"event_lag_seconds", "time from a change until its event is sent, for events that happened while the stream was open", &m.lag)
	for _, reason := range slices.Sorted(maps.Keys(m.ended)) {
		f.Counter(prefix+"event_streams_ended_total", "streams of job events that ended or were rejected, by reason",
			m.ended[reason], "reason", reason)
	}
}
