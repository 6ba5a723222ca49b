package internal

import (
	"sync"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// pulse counts the heartbeats that this replica takes, whether or not it leads.
// The zero value is ready.
type pulse struct {
	mu      sync.Mutex
	streams int
	late    model.Histogram
}

func (p *pulse) begin() { p.add(1) }
func (p *pulse) end()   { p.add(-1) }

func (p *pulse) add(streams int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams += streams
}

// beat counts one that came so long after the one before. One that comes early,
// because it brings news say, is not late.
func (p *pulse) beat(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late.Observe(after - HeartbeatEvery)
}

// Show gives the figures of the heartbeats; process.Metrics collects it.
func (h *Heartbeats) Show(f process.Figures) {
	p := &h.pulse
	p.mu.Lock()
	streams, late := p.streams, p.late
	p.mu.Unlock()
	const prefix = "berth_executor_state_heartbeat_"
	f.Gauge(prefix+"streams", "Agents whose heartbeats this replica takes.", float64(streams))
	f.Histogram(prefix+"lateness_seconds", "Time between the heartbeats of an agent that was more than the time it is told to leave.", &late)
}
