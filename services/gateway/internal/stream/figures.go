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

// counts are the figures of a server's streams.
type counts struct {
	mu   sync.Mutex
	open int
	sent uint64
	lag  model.Histogram
	// ended counts streams by why they ended, those included that never began.
	ended map[string]uint64
}

// readerGone is the one end of a stream that is no error.
const readerGone = "READER_GONE"

// enter takes the place of a stream; false when there is none.
func (c *counts) enter(most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= most {
		return false
	}
	c.open++
	return true
}

// leave gives a stream's place back.
func (c *counts) leave(err error) {
	c.mu.Lock()
	c.open--
	c.mu.Unlock()
	c.refused(err)
}

// refused counts a stream that has ended or did not begin: for an error, or
// because its reader has gone.
func (c *counts) refused(err error) {
	why := readerGone
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		why = string(fault.Of(err).Reason)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[string]uint64{}
	}
	c.ended[why]++
}

// wrote counts an event that was written out. Its lag is that of one that
// happened while the stream was open; what was kept before does not count.
func (c *counts) wrote(f *follower, e *berthv1.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	if at := e.GetTime().AsTime(); at.After(f.opened) {
		c.lag.Observe(time.Since(at))
	}
}

const prefix = "berth_gateway_"

// Figures shows what the server has counted.
func (s *Server) Figures(f process.Figures) {
	c := &s.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Gauge(prefix+"event_streams", "streams of job events that are open", float64(c.open))
	f.Counter(prefix+"events_sent_total", "job events sent to readers", c.sent)
	f.Histogram(prefix+"event_lag_seconds", "from the change an event tells of to its being sent, of events that happened while the stream was open", &c.lag)
	for _, why := range slices.Sorted(maps.Keys(c.ended)) {
		f.Counter(prefix+"event_streams_ended_total", "streams of job events that ended or were refused, by reason", c.ended[why], "reason", why)
	}
}
