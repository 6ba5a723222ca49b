package match

import "berth.dev/pkg/constraint"

// selection is the classes that some attributes and pools select. An executor that changes
// what it has free therefore changes no selection. One selection is the whole fleet, for
// requests without attributes and pools. The others are created by the first request that
// needs them, kept up to date as classes come and go, and dropped when many others have
// been used since. The attribute to spread by makes a selection of its own.
type selection struct {
	selector
	matcher constraint.Matcher
	// classSet is empty for the whole fleet.
	classSet
	// home is the value whose new classes may join; nil if all new classes may.
	home *attributeValue
	// domains is the attribute to spread by; nil for none.
	domains *attributeIndex
	// used rises with each use of a selection.
	used uint64
}

// selector is the identity of a selection.
type selector struct {
	attributes map[string]string
	pools      []string
	// spreadBy is the folded name of the attribute to spread by; empty for none.
	spreadBy string
}

func newSelection(sel selector) *selection {
	return &selection{selector: sel, matcher: constraint.Constraints{Attributes: sel.attributes,
		Pools: sel.pools}.Matcher()}
}

// text is equal for equal selectors.
func (s selector) text() string {
	return constraint.Constraints{Attributes: s.attributes, Pools: s.pools}.Canonical() + ";by:" + s.spreadBy
}

// wholeFleet reports whether the selector selects all classes.
func (s selector) wholeFleet() bool { return len(s.attributes)+len(s.pools) == 0 }

// selects reports whether a class belongs to the selection.
func (s *selection) selects(k *Class) bool {
	ok, _ := s.matcher.Match(k.host)
	return ok
}

// contains reports whether the class with an index is in the selection.
func (s *selection) contains(class int32) bool { return s.wholeFleet() || s.has(class) }

// addSelected adds a class if it belongs to the selection.
func (s *selection) addSelected(k *Class) {
	if !s.wholeFleet() && s.selects(k) {
		s.set(k.index, true)
	}
}

// classSet is a set of classes: one bit for each class, by index, and their number.
type classSet struct {
	bits    []uint64
	classes int
}

func (s *classSet) has(class int32) bool {
	word := int(class >> 6)
	return word < len(s.bits) && s.bits[word]>>(class&63)&1 != 0
}

func (s *classSet) set(class int32, in bool) {
	if s.has(class) == in {
		return
	}
	word := int(class >> 6)
	if word >= len(s.bits) {
		s.bits = append(s.bits, make([]uint64, word+1-len(s.bits))...)
	}
	s.bits[word] ^= 1 << (class & 63)
	if in {
		s.classes++
	} else {
		s.classes--
	}
}
