package match

import (
	"cmp"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"berth.dev/pkg/constraint"
)

// selections holds all classes and all selections.
type selections struct {
	wholeFleet *selection
	// classes holds all classes by index. free lists the indexes without a class.
	classes []*Class
	free    []int32
	byText  map[string]*selection
	// broad lists the selections without attributes: every new class may join them.
	broad []*selection
	// attributes holds the indexed attributes by folded name.
	attributes map[string]*attributeIndex
	uses       uint64
	limits     *Limits
}

func newSelections(limits *Limits) selections {
	return selections{wholeFleet: newSelection(selector{}), byText: map[string]*selection{},
		attributes: map[string]*attributeIndex{}, limits: limits}
}

// get returns the selection of a selector with a text, and creates it if there is none.
func (s *selections) get(sel selector, text string) *selection {
	if sel.wholeFleet() && sel.spreadBy == "" {
		return s.wholeFleet
	}
	found := s.byText[text]
	if found == nil {
		s.dropOldest()
		found = s.create(sel)
		s.byText[text] = found
	}
	s.uses++
	found.used = s.uses
	return found
}

// dropOldest drops selections if there are too many or they are too large. It drops the
// least recently used first, until half of the limits are left.
func (s *selections) dropOldest() {
	words := 0
	for _, selection := range s.byText {
		words += len(selection.bits)
	}
	if len(s.byText) < s.limits.Selections && words < s.limits.Words {
		return
	}
	byAge := slices.SortedFunc(maps.Values(s.byText), func(a, b *selection) int { return cmp.Compare(a.used, b.used) })
	for i, selection := range byAge {
		if len(byAge)-i <= s.limits.Selections/2 && words <= s.limits.Words/2 {
			return
		}
		words -= len(selection.bits)
		s.drop(selection)
	}
}

// create makes a selection with all classes that belong to it. Its home is the value of
// one of its attributes: the value that the fewest classes have.
func (s *selections) create(sel selector) *selection {
	made := newSelection(sel)
	if sel.spreadBy != "" {
		made.domains = s.attribute(sel.spreadBy)
		made.domains.users++
	}
	for name, value := range sel.attributes {
		attribute := s.attribute(constraint.Fold(name))
		attribute.users++
		if home := attribute.value(constraint.Fold(value)); made.home == nil || home.classes.Len() < made.home.classes.Len() {
			made.home = home
		}
	}
	candidates := s.all(s.wholeFleet)
	if made.home == nil {
		s.broad = append(s.broad, made)
	} else {
		made.home.selections = append(made.home.selections, made)
		candidates = made.home.classes.All()
	}
	for k := range candidates {
		made.addSelected(k)
	}
	return made
}

// all iterates over the classes of a selection, in order of index.
func (s *selections) all(of *selection) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		if of.wholeFleet() {
			for _, k := range s.classes {
				if k != nil && !yield(k) {
					return
				}
			}
			return
		}
		for at, word := range of.bits {
			for ; word != 0; word &= word - 1 {
				if !yield(s.classes[at<<6|bits.TrailingZeros64(word)]) {
					return
				}
			}
		}
	}
}

func (s *selections) drop(dropped *selection) {
	delete(s.byText, dropped.text())
	isDropped := func(other *selection) bool { return other == dropped }
	if dropped.spreadBy != "" {
		s.release(dropped.spreadBy)
	}
	if dropped.home == nil {
		s.broad = slices.DeleteFunc(s.broad, isDropped)
		return
	}
	dropped.home.selections = slices.DeleteFunc(dropped.home.selections, isDropped)
	for name, value := range dropped.attributes {
		name = constraint.Fold(name)
		s.attributes[name].dropUnused(constraint.Fold(value))
		s.release(name)
	}
}

// release removes a user of an attribute's index, and deletes the index with its last
// user.
func (s *selections) release(name string) {
	attribute := s.attributes[name]
	if attribute.users--; attribute.users == 0 {
		delete(s.attributes, name)
	}
}

// dropPooled drops the selections with pools. It is called when the members of pools have
// changed.
func (s *selections) dropPooled() {
	for _, text := range slices.Sorted(maps.Keys(s.byText)) {
		if selection := s.byText[text]; len(selection.pools) > 0 {
			s.drop(selection)
		}
	}
}

// attribute returns the index of an attribute, and creates it if there is none.
func (s *selections) attribute(name string) *attributeIndex {
	x := s.attributes[name]
	if x != nil {
		return x
	}
	x = &attributeIndex{values: map[string]*attributeValue{}}
	s.attributes[name] = x
	for class := range s.all(s.wholeFleet) {
		for _, a := range class.attributes {
			if a.name == name {
				x.add(class, a.value)
			}
		}
	}
	return x
}

// add gives a new class an index, and adds the class to the selections to which it
// belongs.
func (s *selections) add(k *Class) {
	if last := len(s.free) - 1; last >= 0 {
		k.index, s.free = s.free[last], s.free[:last]
		s.classes[k.index] = k
	} else {
		k.index = int32(len(s.classes))
		s.classes = append(s.classes, k)
	}
	for _, selection := range s.broad {
		selection.addSelected(k)
	}
	for _, a := range k.attributes {
		attribute := s.attributes[a.name]
		if attribute == nil {
			continue
		}
		for _, selection := range attribute.add(k, a.value).selections {
			selection.addSelected(k)
		}
	}
}

// remove removes a class without executors from all selections.
func (s *selections) remove(k *Class) {
	for _, selection := range s.byText {
		selection.set(k.index, false)
	}
	for _, a := range k.attributes {
		if attribute := s.attributes[a.name]; attribute != nil {
			attribute.remove(k, a.value)
		}
	}
	s.classes[k.index] = nil
	s.free = append(s.free, k.index)
}
