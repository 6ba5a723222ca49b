package match

import (
	"math"
	"math/bits"
)

// sum is a sum of amounts in 128 bits. No fleet overflows it, so subtracting an amount
// that was added restores the earlier value.
type sum struct{ high, low uint64 }

// add adds an amount, which may be negative.
func (s *sum) add(n int64) { s.addSum(sum{uint64(n >> 63), uint64(n)}) }

func (s *sum) addSum(other sum) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, other.low, 0)
	s.high, _ = bits.Add64(s.high, other.high, carry)
}

// saturated returns the sum, or the largest int64 if the sum is greater.
func (s *sum) saturated() int64 {
	if s.high > 0 || s.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.low)
}

func (s *sum) float() float64 { return float64(s.high)*(1<<64) + float64(s.low) }
