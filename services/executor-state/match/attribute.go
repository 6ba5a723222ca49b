package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/core"
)

// Attributes are names and values, folded and in order of name.
type Attributes []attribute

type attribute struct{ name, value string }

// AttributesOf folds attributes.
func AttributesOf(attributes map[string]string) Attributes {
	list := make(Attributes, 0, len(attributes))
	for name, value := range attributes {
		list = append(list, attribute{constraint.Fold(name), constraint.Fold(value)})
	}
	slices.SortFunc(list, func(a, b attribute) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
	})
	return slices.Compact(list)
}

// AttributesKey returns a text that is equal for attributes that are equal without
// regard to case.
func AttributesKey(attributes map[string]string) string {
	folded := make([]string, 0, len(attributes))
	for name, value := range attributes {
		folded = append(folded, fmt.Sprintf("%q=%q", constraint.Fold(name), constraint.Fold(value)))
	}
	slices.Sort(folded)
	return strings.Join(folded, ",")
}

// Contain reports whether attributes have all that are wanted.
func (list Attributes) Contain(wanted Attributes) bool {
	at := 0
	for _, w := range wanted {
		for at < len(list) && list[at].name != w.name {
			at++
		}
		if at == len(list) || list[at].value != w.value {
			return false
		}
	}
	return true
}

// column is the classes by their values of one attribute. There is one for each
// attribute that a section goes by, and none for others: what no request ever
// names costs nothing.
type column struct {
	values map[string]*holders
	// byClass are the holders of each class, by its index; none are those of the
	// classes without the attribute.
	byClass []*holders
	none    holders
	// users counts the sections that go by it.
	users int
}

// holders are the classes with one value, and the sections that look for more
// of them.
type holders struct {
	classes  core.Ordered[*Class]
	sections []*section
	// search is the last that counted workers of a batch here, and taken how many.
	search uint64
	taken  int64
}

func newHolders() *holders { return &holders{classes: core.NewOrdered(compareIndexes)} }

// of answers the holders of a value.
func (k *column) of(value string) *holders {
	h := k.values[value]
	if h == nil {
		h = newHolders()
		k.values[value] = h
	}
	return h
}

// ofClass answers the holders that the class with an index is one of.
func (k *column) ofClass(index int32) *holders {
	if int(index) < len(k.byClass) && k.byClass[index] != nil {
		return k.byClass[index]
	}
	return &k.none
}

// enter adds a class with a value, leave takes it out.
func (k *column) enter(class *Class, value string) *holders {
	h := k.of(value)
	h.classes.Insert(class)
	if grow := int(class.index) + 1 - len(k.byClass); grow > 0 {
		k.byClass = append(k.byClass, make([]*holders, grow)...)
	}
	k.byClass[class.index] = h
	return h
}

func (k *column) leave(class *Class, value string) {
	k.of(value).classes.Remove(class)
	k.byClass[class.index] = nil
	k.dropEmpty(value)
}

// dropEmpty forgets a value that nobody has and nobody looks for.
func (k *column) dropEmpty(value string) {
	if h := k.values[value]; h != nil && h.classes.Len() == 0 && len(h.sections) == 0 {
		delete(k.values, value)
	}
}
