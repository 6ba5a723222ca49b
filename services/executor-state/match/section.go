package match

import "berth.dev/pkg/constraint"

// section is the executors that some attributes and pools choose, by class: an
// executor that changes what it has free is moved in no section. The whole fleet
// is one, of which every request without attributes and pools is served; others
// are made when a request first asks for theirs, kept up as classes come and go,
// and dropped when many others were asked for since. A section by which batches
// are spread is one of its own.
type section struct {
	selector
	matcher constraint.Matcher
	// classSet are its classes. The whole fleet is only counted.
	classSet
	// home is where it learns of new classes; nil if they are all to be asked.
	home *holders
	// domains are the values to spread by; nil for none.
	domains *column
	// asked rises with each time a section is asked for.
	asked   uint64
	dropped bool
}

// selector is what tells sections apart.
type selector struct {
	attributes map[string]string
	pools      []string
	// by is the folded name of the attribute to spread by, empty for none.
	by string
}

func newSection(sel selector) *section {
	return &section{selector: sel, matcher: constraint.Constraints{Attributes: sel.attributes, Pools: sel.pools}.Matcher()}
}

// text is equal for selectors that choose the same.
func (s selector) text() string {
	return constraint.Constraints{Attributes: s.attributes, Pools: s.pools}.Canonical() + ";by:" + s.by
}

// whole reports whether it chooses the whole fleet.
func (s selector) whole() bool { return len(s.attributes)+len(s.pools) == 0 }

// chooses reports whether the executors of a class are in the section.
func (s *section) chooses(k *Class) bool {
	ok, _ := s.matcher.Match(k.host)
	return ok
}

// has reports whether the section has the class with an index.
func (s *section) has(class int32) bool { return s.whole() || s.classSet.has(class) }

// enter takes in a class that the section chooses, leave lets it go.
func (s *section) enter(k *Class) {
	if s.whole() {
		s.classes++
		return
	}
	s.set(k.index, true)
}

func (s *section) leave(k *Class) {
	if s.whole() {
		s.classes--
		return
	}
	s.set(k.index, false)
}

// classSet is a set of classes: a bit for each, by index, and their number.
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
