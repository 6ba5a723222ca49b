package inventory

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
)

// The bounds of sections other than the whole fleet; those that were not asked
// for the longest are dropped when one is reached. A place of an executor in a
// section takes some 50 bytes.
const (
	maxSections = 1 << 12
	maxPlaces   = 1 << 20
)

// maxDomains is how many values of an attribute tell lots apart. With more, a
// batch that is spread by them looks at executors one by one, which soon takes
// less: it finds other values fast.
const maxDomains = 16

// smallPart is the part of the fleet up to which the executors of a new section
// are put into order one by one.
const smallPart = 16

// sections are all there are.
type sections struct {
	whole  *section
	byText map[string]*section
	// broad are those that go by no attribute, the whole fleet first.
	broad []*section
	// columns are by folded name of the attribute.
	columns map[string]*column
	asked   uint64
	// limits are maxSections, maxPlaces, maxDomains and smallPart, but in tests.
	limits struct{ sections, places, domains, smallPart int }
}

func newSections() sections {
	s := sections{byText: map[string]*section{}, columns: map[string]*column{}}
	s.limits.sections, s.limits.places, s.limits.domains, s.limits.smallPart = maxSections, maxPlaces, maxDomains, smallPart
	s.whole = newSection(selector{})
	s.broad = []*section{s.whole}
	return s
}

// get answers the section of a selector, which is made if need be. Whoever had
// it before gives what it had.
func (s *sections) get(sel selector, found *section) *section {
	if sel.whole() {
		return s.whole
	}
	if found == nil || found.dropped {
		found = s.byText[sel.text()]
	}
	if found != nil && found.crowded(s.limits.domains) {
		s.drop(found)
		found = nil
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

// makeRoom drops half of the sections when there are too many.
func (s *sections) makeRoom() {
	places := 0
	for _, section := range s.byText {
		places += section.size
	}
	if len(s.byText) < s.limits.sections && places < s.limits.places {
		return
	}
	byAge := slices.SortedFunc(maps.Values(s.byText), func(a, b *section) int { return cmp.Compare(a.asked, b.asked) })
	for i, section := range byAge {
		if len(byAge)-i <= s.limits.sections/2 && places <= s.limits.places/2 {
			return
		}
		places -= section.size
		s.drop(section)
	}
}

// make makes the section of a selector, with all executors that it chooses.
func (s *sections) make(sel selector) *section {
	made := newSection(sel)
	from := &s.whole.classes
	for name, value := range sel.attributes {
		column := s.column(constraint.Fold(name))
		column.users++
		if home := column.of(constraint.Fold(value)); made.home == nil || home.classes.len() < from.len() {
			made.home, from = home, &home.classes
		}
	}
	if made.home != nil {
		made.home.sections = append(made.home.sections, made)
	} else {
		s.broad = append(s.broad, made)
	}
	for k := range from.all() {
		if made.chooses(k) {
			made.enter(k)
		}
	}
	made.mixed = len(made.domains) > s.limits.domains
	s.populate(made)
	return made
}

// populate gives the executors of a new section their places. Those of a large
// part of the fleet are found in its buckets, where they are in order already;
// those of a small part one by one.
func (s *sections) populate(made *section) {
	for k := range made.classes.all() {
		for _, h := range k.hosts {
			made.post(h).lot.standing[h.standing]++
		}
	}
	if made.size > s.whole.size/s.limits.smallPart {
		for _, l := range s.whole.lots {
			for _, b := range l.list {
				key := []byte(b.key)
				for h := range b.hosts.all() {
					if p := &h.posts[len(h.posts)-1]; p.lot.section == made {
						p.bucket = p.lot.bucketOf(b.free, key)
						p.bucket.hosts.append(h)
					}
				}
			}
		}
		return
	}
	for k := range made.classes.all() {
		for _, h := range k.hosts {
			if b := h.posts[0].bucket; b != nil {
				p := &h.posts[len(h.posts)-1]
				p.bucket = p.lot.bucketOf(b.free, []byte(b.key))
				p.bucket.hosts.insert(h)
			}
		}
	}
}

// drop forgets a section.
func (s *sections) drop(gone *section) {
	gone.dropped = true
	delete(s.byText, gone.text())
	is := func(in *section) bool { return in == gone }
	for k := range gone.classes.all() {
		k.sections = slices.DeleteFunc(k.sections, is)
		for _, h := range k.hosts {
			h.posts = slices.DeleteFunc(h.posts, func(p post) bool { return p.lot.section == gone })
		}
	}
	if gone.home == nil {
		s.broad = slices.DeleteFunc(s.broad, is)
		return
	}
	gone.home.sections = slices.DeleteFunc(gone.home.sections, is)
	for name, value := range gone.attributes {
		name = constraint.Fold(name)
		column := s.columns[name]
		column.dropEmpty(constraint.Fold(value))
		if column.users--; column.users == 0 {
			delete(s.columns, name)
		}
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
	for class := range s.whole.classes.all() {
		for _, a := range class.attributes {
			if a.name == name {
				k.of(a.value).classes.insert(class)
			}
		}
	}
	return k
}

// enter finds the sections that choose a new class.
func (s *sections) enter(k *class) {
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
			home := column.of(a.value)
			home.classes.insert(k)
			ask(home.sections)
		}
	}
}

// leave takes a class that has ended out of the sections that choose it.
func (s *sections) leave(k *class) {
	for _, section := range k.sections {
		section.leave(k)
	}
	for _, a := range k.attributes {
		if column := s.columns[a.name]; column != nil {
			column.of(a.value).classes.remove(k)
			column.dropEmpty(a.value)
		}
	}
}
