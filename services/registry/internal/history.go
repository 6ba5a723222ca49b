package internal

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
)

const (
	// pointEvery is the time between two points of the history, and maxPoints their maximum
	// number: together one hour.
	pointEvery = 15 * time.Second
	maxPoints  = 240
)

// history has the depth of the queues in the last hour. Every replica samples its own core, so
// a new leader has the points of the time before its election. Nothing is stored.
type history struct {
	mu     sync.Mutex
	points []*berthv1.PendingPoint // oldest first; a point never changes
}

func (h *history) add(p *berthv1.PendingPoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.points) == maxPoints {
		copy(h.points, h.points[1:])
		h.points = h.points[:maxPoints-1]
	}
	h.points = append(h.points, p)
}

// since returns the points that are not older than a time.
func (h *history) since(oldest time.Time) (points []*berthv1.PendingPoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.points {
		if !p.GetTime().AsTime().Before(oldest) {
			points = append(points, p)
		}
	}
	return points
}

// Sample adds a point to the history whenever the clock reaches a multiple of pointEvery, until
// ctx ends. peek calls a function with the core on the goroutine that owns the core, whether
// the replica leads or not. Sample adds no point if peek fails, and none while the registry is
// not ready: until then it knows only a part of the queues.
func (s *Reservations) Sample(ctx context.Context, peek func(context.Context, func(*queue.Core)) error) error {
	for {
		now := s.loop.Now()
		next := now.Truncate(pointEvery).Add(pointEvery)
		if store.Sleep(ctx, next.Sub(now)) != nil {
			return nil
		}
		s.sample(ctx, peek)
	}
}

func (s *Reservations) sample(ctx context.Context, peek func(context.Context, func(*queue.Core)) error) {
	ctx, cancel := context.WithTimeout(ctx, pointEvery/2)
	defer cancel()
	var point *berthv1.PendingPoint
	err := peek(ctx, func(c *queue.Core) {
		now := s.loop.Now()
		if depth, ready := c.Depth(now); ready {
			point = &berthv1.PendingPoint{Time: wire.Timestamp(now), Groups: clamp(depth.Groups),
				Reservations: clamp(depth.Reservations), Workers: clamp(depth.Workers)}
		}
	})
	if err == nil && point != nil {
		s.history.add(point)
	}
}

// GetPendingHistory implements berth.v1.Reservations.
func (s *Reservations) GetPendingHistory(ctx context.Context,
	_ *berthv1.GetPendingHistoryRequest) (*berthv1.GetPendingHistoryAnswer, error) {
	answer := &berthv1.GetPendingHistoryAnswer{Interval: durationpb.New(pointEvery)}
	// The read returns an error if this replica does not lead.
	err := s.loop.Read(ctx, false, func(*queue.Core) {
		answer.Points = s.history.since(s.loop.Now().Add(-maxPoints * pointEvery))
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}
