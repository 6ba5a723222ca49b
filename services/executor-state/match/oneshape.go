package match

import "slices"

// shapeRoom is what is known of the room for a batch on one shape.
type shapeRoom struct {
	// shape is nil as long as none of its executors was looked at.
	shape *Shape
	// workers is how many fit on those looked at, at most as many as are asked
	// for; bound is more than fit on all.
	workers, bound int64
	// looked counts its executors that were looked at and that a worker fits on.
	looked int
}

// skippedBlock is a block with the request in the order of its form.
type skippedBlock struct {
	aim   *aim
	block *block
}

// oneShape answers the shape that the batch is to be placed on: of those that
// take all of it, the one that the best executor is of. Without one it is nil,
// and fitting is what the most spacious takes.
//
// A shape that takes so many has an executor that takes its part of them, be it the
// shape with the most executors. Blocks in which nobody could are not needed to
// find such shapes; they are looked into afterwards, for what those found have there.
func (s *search) oneShape() (only *Shape, fitting int) {
	if likely := s.likelyShape(); likely != nil {
		return likely, int(s.needed)
	}
	best := int64(0)
	s.rooms = append(s.rooms[:0], make([]shapeRoom, s.shapes.count)...)
	s.Spent += len(s.rooms) / blockSize
	taken := map[shapeDomain]int64{}
	count := func(a *aim, b *block, at int) {
		of := b.traits[at].shape
		room := &s.rooms[of]
		if room.looked++; room.workers >= s.needed {
			return
		}
		n := a.times(b.point(at), s.most)
		if s.domains != nil {
			key := shapeDomain{of, s.domains.ofClass(b.traits[at].class)}
			n = min(n, s.spread-taken[key])
			taken[key] += n
		}
		room.workers = min(room.workers+n, s.needed)
		best = max(best, room.workers)
	}
	s.skipped, s.touched = s.skipped[:0], s.touched[:0]
	for a, b := range s.blocks() {
		if int64(s.shapes.crowd)*a.times(b.high, s.most) < min(best+1, s.needed) {
			s.skipped = append(s.skipped, skippedBlock{a, b})
			continue
		}
		for at := range s.fitting(a, b) {
			of := b.traits[at].shape
			if room := &s.rooms[of]; room.shape == nil {
				room.shape = b.executors[at].shape
				room.bound = int64(room.shape.counts[Open]) * a.times(room.shape.idle, s.most)
				s.touched = append(s.touched, of)
			}
			count(a, b, at)
		}
	}
	if s.unsure(best) {
		for _, p := range s.skipped {
			for at := range s.fitting(p.aim, p.block) {
				if s.rooms[p.block.traits[at].shape].shape != nil {
					count(p.aim, p.block, at)
				}
			}
		}
	}
	if best < s.needed {
		return nil, int(best)
	}
	t := s.ranking(s.most)
	for {
		k, _ := t.first()
		if s.rooms[k.executor.shape.index].workers >= s.needed {
			return k.executor.shape, int(s.needed)
		}
		t.pop()
	}
}

// unsure reports whether executors of a shape that may take more than best, or all of
// the batch, may not have been looked at.
func (s *search) unsure(best int64) bool {
	return len(s.skipped) > 0 && slices.ContainsFunc(s.touched, func(of int32) bool {
		room := &s.rooms[of]
		return room.workers < s.needed && room.bound >= min(best+1, s.needed) && room.looked < room.shape.counts[Open]
	})
}

// likelyShape answers the shape if the best executors are of it. Mostly it is that
// of the very first, and then nobody has to look at all the others. Where no shape
// has as many executors as there are workers, that is soon done by itself.
func (s *search) likelyShape() *Shape {
	if int64(s.shapes.crowd) < s.needed {
		return nil
	}
	small := map[*Shape]bool{}
	t := s.ranking(s.most)
	for range likelyLooks {
		k, ok := t.first()
		if !ok {
			return nil
		}
		if only := k.executor.shape; !small[only] {
			s.only = only
			s.anew()
			room := s.room()
			s.only = nil
			if int64(room) == s.needed {
				return only
			}
			if small[only] = true; len(small) == likelyShapes {
				return nil
			}
		}
		t.pop()
	}
	return nil
}

// So many of the best executors, and of their shapes, are looked at before all are.
const (
	likelyLooks  = 256
	likelyShapes = 4
)

type shapeDomain struct {
	shape  int32
	domain *holders
}
