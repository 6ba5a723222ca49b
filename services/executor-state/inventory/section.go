package inventory

import "berth.dev/pkg/constraint"

// section is the executors that some attributes and pools choose, by shape and
// by what they have free. The whole fleet is one, of which every request without
// attributes and pools is served; others are made when a request first asks for
// theirs, kept up as executors change, and dropped when many others were asked
// for since. A section by which batches are spread is one of its own.
type section struct {
	selector
	matcher constraint.Matcher
	// classes are those that it chooses.
	classes ordered[*class]
	// domains counts its classes by the value to spread by.
	domains map[string]int
	// lots are by shape and, unless it is mixed, by domain.
	lots   map[lotKey]*lot
	roster roster
	// mixed: the values that it spreads by are too many to tell lots apart.
	mixed bool
	// size counts its executors.
	size int
	// home is where it learns of new classes; nil if they are all to be asked.
	home *holders
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
	return &section{
		selector: sel,
		matcher:  constraint.Constraints{Attributes: sel.attributes, Pools: sel.pools}.Matcher(),
		classes:  ordered[*class]{compare: compareNumbers},
		lots:     map[lotKey]*lot{}, domains: map[string]int{},
	}
}

// text is equal for selectors that choose the same.
func (s selector) text() string {
	return constraint.Constraints{Attributes: s.attributes, Pools: s.pools}.Canonical() + ";by:" + s.by
}

func (s selector) whole() bool { return len(s.attributes)+len(s.pools) == 0 && s.by == "" }

// chooses says whether the executors of a class are in the section.
func (s *section) chooses(k *class) bool {
	ok, _ := s.matcher.Match(k.host)
	return ok
}

// enter takes in a class that the section chooses, leave lets it go.
func (s *section) enter(k *class) {
	s.classes.insert(k)
	s.domains[k.value(s.by)]++
	k.sections = append(k.sections, s)
}

func (s *section) leave(k *class) {
	s.classes.remove(k)
	domain := k.value(s.by)
	if s.domains[domain]--; s.domains[domain] == 0 {
		delete(s.domains, domain)
	}
}

// post gives an executor, of a class that the section chooses, its place.
func (s *section) post(h *host) *post {
	key := lotKey{shape: h.shape}
	if s.by != "" && !s.mixed {
		key.domain = h.class.value(s.by)
	}
	l := s.lots[key]
	if l == nil {
		l = &lot{section: s, lotKey: key, buckets: map[string]*bucket{}}
		s.lots[key] = l
		s.roster.add(l)
	}
	s.size++
	l.size++
	h.posts = append(h.posts, post{lot: l})
	return &h.posts[len(h.posts)-1]
}

// end forgets a lot that has no executors any more.
func (s *section) end(l *lot) {
	delete(s.lots, l.lotKey)
	s.roster.end()
}

// crowded says that what tells lots apart has come to be too much.
func (s *section) crowded(limit int) bool { return !s.mixed && len(s.domains) > limit }
