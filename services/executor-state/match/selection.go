package match

import "berth.dev/pkg/constraint"

// selection holds the classes that some attributes and pools select. So a change of an
// executor's free capacity changes no selection. One selection is the whole fleet, for
// requests without attributes and pools. Any other selection is created by the first
// request that needs it, and updated as classes are added and removed. It is dropped when
// many other selections have been used since. Each attribute to spread by makes a
// selection of its own.
type selection struct {
	selector
	matcher constraint.Matcher
	// classSet is empty for the whole fleet.
	classSet
	// home is the attribute value whose new classes may join the selection; nil if all new
	// classes may join.
	home *attributeValue
	// domains is the attribute to spread by; nil for none.
	domains *attributeIndex
	// used orders selections by their last use.
	used uint64
}

// selector identifies a selection.
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

// text returns a text that is the same for equal selectors.
func (s selector) text() string {
	return constraint.Constraints{Attributes: s.attributes, Pools: s.pools}.Canonical() + ";by:" + s.spreadBy
}

// wholeFleet reports whether the selector selects all classes.
func (s selector) wholeFleet() bool { return len(s.attributes)+len(s.pools) == 0 }

// selects reports whether the matcher of the selection selects a class.
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
