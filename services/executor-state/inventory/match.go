package inventory

import (
	"math"

	"berth.dev/pkg/constraint"
)

// Best fit. A worker goes to the executor of which least is left over, where
// it hurts most: what would be left of each resource is taken as a share of
// all that is free of it in the fleet when the entry is tried, and the largest
// share counts. So a worker that only needs a processor leaves hosts with rare
// devices alone. The smallest score wins, then the newest generation, then the
// lowest id.
//
// Workers are placed one after the other. Placing one lowers its executor's
// score, so the next goes to the same executor until it takes no more: the
// matcher therefore visits executors in one order, each once, and takes from
// each what it can. The order is that of buckets, which share one score; only
// the executors that are taken are looked at.

// pick is how many workers of a batch an executor takes.
type pick struct {
	host    *host
	workers int
}

// choose picks executors for n workers. With fitting < n there are too few, and
// none is picked; nothing is changed either way.
func (c *Core) choose(k constraint.Constraints, n int) (picks []pick, fitting int) {
	s := c.search(k, n)
	candidates, fitting := s.plan()
	if candidates == nil {
		return nil, fitting
	}
	return s.fill(candidates), fitting
}

func (c *Core) search(k constraint.Constraints, n int) *search {
	s := &search{Core: c, query: c.query(k), constraints: k, needed: int64(n)}
	s.spreads = spreadBy(k.Spread) != ""
	s.avoid(c.avoided(k, s.query))
	return s
}

// plan answers the candidates that the batch is to be placed on, and how many
// of its workers fit; no candidates when those are not all. With sameShape they
// are of one shape: of those that take the whole batch, the one that the best
// candidate is of.
func (s *search) plan() (best []*candidate, fitting int) {
	candidates := s.candidates()
	if !s.constraints.SameShape {
		if fitting = s.room(candidates); int64(fitting) < s.needed {
			return nil, fitting
		}
		return candidates, fitting
	}
	var opening *candidate
	for _, group := range byShape(candidates) {
		room := s.room(group)
		fitting = max(fitting, room)
		if int64(room) < s.needed {
			continue
		}
		if first := first(group, s.constraints.Pack); opening == nil || before(first, opening, s.constraints.Pack) {
			best, opening = group, first
		}
	}
	return best, fitting
}

// search is one entry's look at the fleet.
type search struct {
	*Core
	query       *query
	constraints constraint.Constraints
	needed      int64
	// spreads: at most so many workers may share a value of an attribute.
	// Executors without it count as one value together.
	spreads bool
	avoided map[string]bool
	// shunned counts the avoided executors in each bucket.
	shunned map[*bucket]int
}

// candidate is a bucket whose executors take a worker each at least.
type candidate struct {
	// head is the best executor of the bucket that is still to be taken.
	head  *host
	score float64
	// times is how many workers each executor takes.
	times int64
	// size is times, as far as the batch wants it; it orders with pack.
	size   int64
	bucket *bucket
	at     cursor[*host]
	// alone: it is its head alone, taken out of the candidate of its bucket.
	alone bool
}

// before orders candidates: with pack those that take most come first.
func before(a, b *candidate, pack bool) bool {
	if pack && a.size != b.size {
		return a.size > b.size
	}
	if a.score != b.score {
		return a.score < b.score
	}
	return compareRank(a.head, b.head) < 0
}

func first(candidates []*candidate, pack bool) *candidate {
	best := candidates[0]
	for _, candidate := range candidates[1:] {
		if before(candidate, best, pack) {
			best = candidate
		}
	}
	return best
}

func byShape(candidates []*candidate) map[*shape][]*candidate {
	groups := map[*shape][]*candidate{}
	for _, candidate := range candidates {
		shape := candidate.bucket.lot.shape
		groups[shape] = append(groups[shape], candidate)
	}
	return groups
}

// candidates are the buckets that a worker fits into, in no order. They are
// valid until the next call.
func (s *search) candidates() []*candidate {
	s.slab = s.slab[:0]
	for _, e := range s.query.eligible {
		for _, bucket := range e.lot.list {
			times, score := bucket.fit(e.need, e.share)
			if times == 0 {
				continue
			}
			found := candidate{bucket: bucket, score: score, times: times}
			found.head, _ = bucket.hosts.first()
			found.size = s.most(&found)
			found.at.set = &bucket.hosts
			if s.avoided == nil || s.settleOn(&found) {
				s.slab = append(s.slab, found)
			}
		}
	}
	s.list = s.list[:0]
	for i := range s.slab {
		s.list = append(s.list, &s.slab[i])
	}
	return s.list
}

// settleOn moves the candidate to its next executor that is not avoided.
func (s *search) settleOn(k *candidate) bool {
	for {
		head, ok := k.at.item()
		if !ok || !s.avoided[head.id] {
			k.head = head
			return ok
		}
		k.at.next()
	}
}

func (s *search) avoid(ids map[string]bool) {
	s.avoided = ids
	if ids == nil {
		return
	}
	s.shunned = map[*bucket]int{}
	for id := range ids {
		if h := s.hosts[id]; h != nil {
			if post := s.query.postOf(h); post != nil {
				s.shunned[post.bucket]++
			}
		}
	}
}

// most is how many workers one of the candidate's executors may take at most,
// whatever the others have.
func (s *search) most(k *candidate) int64 {
	most := min(k.times, s.needed)
	if s.constraints.Spread.Max > 0 {
		most = min(most, int64(s.constraints.Spread.Max))
	}
	return most
}

// room is how many workers of the batch the candidates take together. It counts
// what fill would place, and looks at executors only where a bucket has several
// values to spread by.
func (s *search) room(candidates []*candidate) int {
	room, enough := int64(0), s.needed
	domains := s.newDomains()
	if s.spreads {
		enough = min(enough, domains.limit*int64(len(s.query.section.domains)))
	}
	for _, k := range candidates {
		most := s.most(k)
		switch {
		case !s.spreads:
			room += most * int64(k.bucket.hosts.len()-s.shunned[k.bucket])
		case !s.query.section.mixed:
			room += domains.take(k.bucket.lot.domain, most*int64(k.bucket.hosts.len()-s.shunned[k.bucket]))
		default:
			for h := range k.bucket.hosts.all() {
				if !s.avoided[h.id] {
					room += domains.take(s.domainOf(h), most)
				}
				if room >= enough {
					break
				}
			}
		}
		if room >= enough {
			break
		}
	}
	return int(min(room, s.needed))
}

// domains counts the workers of a batch by the value that they are spread by.
type domains struct {
	limit int64
	taken map[string]int64
}

func (s *search) newDomains() domains {
	if !s.spreads {
		return domains{limit: math.MaxInt64}
	}
	return domains{int64(s.constraints.Spread.Max), map[string]int64{}}
}

// left is how many more workers the domain may take.
func (d domains) left(domain string) int64 { return d.limit - d.taken[domain] }

// take counts up to n workers in the domain, and answers how many.
func (d domains) take(domain string, n int64) int64 {
	n = min(n, d.left(domain))
	if d.taken != nil {
		d.taken[domain] += n
	}
	return n
}

// domainOf is the value that spread counts the executor by.
func (s *search) domainOf(h *host) string {
	if !s.spreads {
		return ""
	}
	return h.class.value(s.query.selector.by)
}

// fill takes the candidates' executors in order until the batch is placed, for
// which they have room.
func (s *search) fill(candidates []*candidate) (picks []pick) {
	queue := heap{candidates, s.constraints.Pack}
	queue.init()
	domains := s.newDomains()
	for left := s.needed; left > 0; {
		next := queue.list[0]
		domain := s.domainOf(next.head)
		most := min(next.size, left)
		size := min(most, domains.left(domain))
		switch {
		case size > 0 && size == next.size, size > 0 && !s.constraints.Pack:
			picks = append(picks, pick{next.head, int(size)})
			left -= domains.take(domain, size)
		case size > 0 && (size == most || next.alone || !s.query.section.mixed):
			// It takes less than it was ordered by; others may now take more.
			next.size = size
			queue.down(0)
			continue
		case size > 0:
			// Only its head does: the rest of the bucket is of other domains.
			queue.push(&candidate{head: next.head, score: next.score, size: size, bucket: next.bucket, alone: true})
		case !s.query.section.mixed:
			queue.pop()
			continue
		}
		if next.alone || !s.advance(next) {
			queue.pop()
		} else {
			queue.down(0)
		}
	}
	return picks
}

// advance moves the candidate to its next executor; false when it has none.
func (s *search) advance(k *candidate) bool {
	k.at.next()
	return s.settleOn(k)
}

// fit answers how many workers one executor of the bucket takes, and its score
// with one more. A share is that of the worker's role, by its place plus one.
func (b *bucket) fit(need []int64, share int) (times int64, score float64) {
	times = math.MaxInt64
	own := b.free[share*len(need):]
	for i, amount := range need {
		free := b.free[i]
		if share > 0 {
			free += own[i]
		}
		if amount > 0 {
			times = min(times, free/amount)
		}
		if left := free - amount; left > 0 {
			score = max(score, float64(left)/b.lot.shape.total[i].float())
		}
	}
	return times, score
}
