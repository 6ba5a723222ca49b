package match

import (
	"cmp"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"berth.dev/pkg/constraint"
)

// sections are all there are.
type sections struct {
	whole *section
	// classes are all, by index; free are the indexes that nobody has.
	classes []*Class
	free    []int32
	byText  map[string]*section
	// broad are those that go by no attribute, the whole fleet first.
	broad []*section
	// columns are by folded name of the attribute.
	columns map[string]*column
	asked   uint64
	limits  *Limits
}

func newSections(limits *Limits) sections {
	s := sections{byText: map[string]*section{}, columns: map[string]*column{}, limits: limits}
	s.whole = newSection(selector{})
	s.broad = []*section{s.whole}
	return s
}

// get answers the section of a selector, which is made if need be. Whoever had
// it before gives what it had.
func (s *sections) get(sel selector, found *section) *section {
	if sel.whole() && sel.by == "" {
		return s.whole
	}
	if found == nil || found.dropped {
		found = s.byText[sel.text()]
	}
	if found == nil {
		s.makeRoom()
		found = s.make(sel)
		s.byText[sel.text()] = found
	}
	s.asked++
	found.asked = s.asked
	return found
}

// makeRoom drops half of the sections when there are too many, those first that were
// not asked for the longest.
func (s *sections) makeRoom() {
	words := 0
	for _, section := range s.byText {
		words += len(section.bits)
	}
	if len(s.byText) < s.limits.Sections && words < s.limits.Words {
		return
	}
	byAge := slices.SortedFunc(maps.Values(s.byText), func(a, b *section) int { return cmp.Compare(a.asked, b.asked) })
	for i, section := range byAge {
		if len(byAge)-i <= s.limits.Sections/2 && words <= s.limits.Words/2 {
			return
		}
		words -= len(section.bits)
		s.drop(section)
	}
}

// make makes the section of a selector, with all classes that it chooses.
func (s *sections) make(sel selector) *section {
	made := newSection(sel)
	if sel.by != "" {
		made.domains = s.column(sel.by)
		made.domains.users++
	}
	for name, value := range sel.attributes {
		column := s.column(constraint.Fold(name))
		column.users++
		if home := column.of(constraint.Fold(value)); made.home == nil || home.classes.Len() < made.home.classes.Len() {
			made.home = home
		}
	}
	if made.home == nil {
		s.broad = append(s.broad, made)
		for k := range s.all(s.whole) {
			if made.chooses(k) {
				made.enter(k)
			}
		}
		return made
	}
	made.home.sections = append(made.home.sections, made)
	for k := range made.home.classes.All() {
		if len(sel.attributes)+len(sel.pools) == 1 || made.chooses(k) {
			made.enter(k)
		}
	}
	return made
}

// all gives the classes of a section, in order of index.
func (s *sections) all(of *section) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		if of.whole() {
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

// drop forgets a section.
func (s *sections) drop(gone *section) {
	gone.dropped = true
	delete(s.byText, gone.text())
	is := func(in *section) bool { return in == gone }
	if gone.by != "" {
		s.release(gone.by)
	}
	if gone.home == nil {
		s.broad = slices.DeleteFunc(s.broad, is)
		return
	}
	gone.home.sections = slices.DeleteFunc(gone.home.sections, is)
	for name, value := range gone.attributes {
		name = constraint.Fold(name)
		s.columns[name].dropEmpty(constraint.Fold(value))
		s.release(name)
	}
}

// release forgets a column that nobody else uses.
func (s *sections) release(name string) {
	column := s.columns[name]
	if column.users--; column.users == 0 {
		delete(s.columns, name)
	}
}

// dropPooled forgets the sections that go by pools: which executors those have
// has changed.
func (s *sections) dropPooled() {
	for _, text := range slices.Sorted(maps.Keys(s.byText)) {
		if section := s.byText[text]; len(section.pools) > 0 {
			s.drop(section)
		}
	}
}

// column answers the classes by their values of an attribute.
func (s *sections) column(name string) *column {
	k := s.columns[name]
	if k != nil {
		return k
	}
	k = &column{values: map[string]*holders{}}
	s.columns[name] = k
	for class := range s.all(s.whole) {
		for _, a := range class.attributes {
			if a.name == name {
				k.enter(class, a.value)
			}
		}
	}
	return k
}

// enter gives a new class an index, and finds the sections that choose it.
func (s *sections) enter(k *Class) {
	if last := len(s.free) - 1; last >= 0 {
		k.index, s.free = s.free[last], s.free[:last]
		s.classes[k.index] = k
	} else {
		k.index = int32(len(s.classes))
		s.classes = append(s.classes, k)
	}
	ask := func(list []*section) {
		for _, section := range list {
			if section.chooses(k) {
				section.enter(k)
			}
		}
	}
	ask(s.broad)
	for _, a := range k.attributes {
		if column := s.columns[a.name]; column != nil {
			ask(column.enter(k, a.value).sections)
		}
	}
}

// leave takes a class that has ended out of the sections that have it.
func (s *sections) leave(k *Class) {
	s.whole.leave(k)
	for _, section := range s.byText {
		if section.has(k.index) {
			section.leave(k)
		}
	}
	for _, a := range k.attributes {
		if column := s.columns[a.name]; column != nil {
			column.leave(k, a.value)
		}
	}
	s.classes[k.index] = nil
	s.free = append(s.free, k.index)
}
