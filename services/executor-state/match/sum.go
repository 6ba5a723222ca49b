package match

import (
	"math"
	"math/bits"
)

// sum is a sum of amounts that no fleet overflows, and that comes back to the
// same value when what was added is taken away.
type sum struct{ high, low uint64 }

func (s *sum) add(n uint64) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, n, 0)
	s.high += carry
}

func (s *sum) subtract(n uint64) {
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, n, 0)
	s.high -= borrow
}

// join adds another sum.
func (s *sum) join(other sum) {
	s.add(other.low)
	s.high += other.high
}

// saturated answers the sum, at most the largest int64.
func (s *sum) saturated() int64 {
	if s.high > 0 || s.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.low)
}

func (s *sum) float() float64 { return float64(s.high)*(1<<64) + float64(s.low) }
