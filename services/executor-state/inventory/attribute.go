package inventory

import (
	"cmp"
	"slices"

	"berth.dev/pkg/constraint"
)

// attribute is a name and a value, folded.
type attribute struct{ name, value string }

func compareAttributes(a, b attribute) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
}

// attributesOf answers what attributes say, in order.
func attributesOf(attributes map[string]string) []attribute {
	list := make([]attribute, 0, len(attributes))
	for name, value := range attributes {
		list = append(list, attribute{constraint.Fold(name), constraint.Fold(value)})
	}
	slices.SortFunc(list, compareAttributes)
	return slices.Compact(list)
}

// value answers the class's value of an attribute, empty without one. Name is
// folded, and so is what it answers.
func (k *class) value(name string) string {
	at, found := slices.BinarySearchFunc(k.attributes, name, func(a attribute, name string) int { return cmp.Compare(a.name, name) })
	if !found {
		return ""
	}
	return k.attributes[at].value
}

// column is the classes by their values of one attribute. There is one for each
// attribute that a section goes by, and none for others: what no request ever
// names costs nothing.
type column struct {
	values map[string]*holders
	// users counts the sections that go by it.
	users int
}

// holders are the classes with one value, and the sections that look for more
// of them.
type holders struct {
	classes  ordered[*class]
	sections []*section
}

func newHolders() *holders { return &holders{classes: ordered[*class]{compare: compareNumbers}} }

// of answers the holders of a value.
func (k *column) of(value string) *holders {
	h := k.values[value]
	if h == nil {
		h = newHolders()
		k.values[value] = h
	}
	return h
}

// dropEmpty forgets a value that nobody has and nobody looks for.
func (k *column) dropEmpty(value string) {
	if h := k.values[value]; h != nil && h.classes.len() == 0 && len(h.sections) == 0 {
		delete(k.values, value)
	}
}
