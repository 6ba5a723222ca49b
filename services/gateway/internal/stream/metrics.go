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
	// ofJob counts the open streams by job, and of those by tenant, for the tenants of the
	// latest call.
	ofJob   map[string]int
	of      map[*model.Tenant]int
	tenants *model.Tenants
	sent    uint64
	lag     model.Histogram
	// ended counts ended and rejected streams by reason.
	ended map[string]uint64
}

// readerDisconnected is the reason of a stream that ended without an error.
const readerDisconnected = "READER_DISCONNECTED"

// opened counts a new stream of a job, unless the maximum number of streams is open
// already, in all or of the job's tenant.
func (m *metrics) opened(job string, most int, tenants *model.Tenants) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setTenants(tenants)
	t := tenants.Of(job)
	switch {
	case t != nil && t.Limits.EventStreams > 0 && m.of[t] >= t.Limits.EventStreams:
		return t.Exceeded(model.LimitEventStreams, m.of[t], t.Limits.EventStreams)
	case m.open >= most:
		// Unavailable: another gateway may accept the stream.
		return fault.New(fault.Unavailable, fault.ReasonOverloaded, "this gateway has %d open streams, its maximum", most)
	}
	m.add(job, 1)
	return nil
}

// closed counts the end of an open stream.
func (m *metrics) closed(job string, cause error) {
	m.mu.Lock()
	m.add(job, -1)
	m.mu.Unlock()
	m.rejected(cause)
}

// add changes the number of open streams of a job.
func (m *metrics) add(job string, n int) {
	m.open += n
	if m.ofJob[job] += n; m.ofJob[job] == 0 {
		delete(m.ofJob, job)
	}
	if t := m.tenants.Of(job); t != nil {
		m.of[t] += n
	}
}

// setTenants counts the open streams by tenant again if the tenants are others than before.
func (m *metrics) setTenants(tenants *model.Tenants) {
	if tenants == m.tenants {
		return
	}
	m.tenants, m.of = tenants, map[*model.Tenant]int{}
	for job, n := range m.ofJob {
		if t := tenants.Of(job); t != nil {
			m.of[t] += n
		}
	}
}

// byTenant returns the number of open streams by name of the tenant.
func (m *metrics) byTenant(tenants *model.Tenants) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setTenants(tenants)
	open := make(map[string]int, len(m.of))
	for t, n := range m.of {
		open[t.Name] = n
	}
	return open
}

// rejected counts a stream that ended or was refused, by the reason in cause. Without a
// cause, the reader disconnected.
func (m *metrics) rejected(cause error) {
	reason := readerDisconnected
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
	f.Gauge(prefix+"event_streams", "streams of job events and of watches that are open", float64(m.open))
	f.Counter(prefix+"events_sent_total", "job events sent to readers", m.sent)
	f.Histogram(prefix+"event_lag_seconds", "time from a change until its event is sent, for events that happened while the stream was open", &m.lag)
	for _, reason := range slices.Sorted(maps.Keys(m.ended)) {
		f.Counter(prefix+"event_streams_ended_total", "streams of job events and of watches that ended or were rejected, by reason",
			m.ended[reason], "reason", reason)
	}
}
