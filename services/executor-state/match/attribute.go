package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/core"
)

// Attributes is a list of folded names and values, in order of name.
type Attributes []attribute

type attribute struct{ name, value string }

// AttributesOf returns the folded attributes.
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

// AttributesKey returns a text that is the same for attributes that are equal without
// regard to case.
func AttributesKey(attributes map[string]string) string {
	folded := make([]string, 0, len(attributes))
	for name, value := range attributes {
		folded = append(folded, fmt.Sprintf("%q=%q", constraint.Fold(name), constraint.Fold(value)))
	}
	slices.Sort(folded)
	return strings.Join(folded, ",")
}

// Contain reports whether the list contains all wanted attributes.
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

// attributeIndex finds classes by their value of one attribute. An attribute is indexed
// only while a selection uses it.
type attributeIndex struct {
	values map[string]*attributeValue
	// byClass holds the value of each class, by the index of the class. Classes without the
	// attribute have the value none.
	byClass []*attributeValue
	none    attributeValue
	// users counts the selections that use the attribute.
	users int
}

// attributeValue holds the classes with one value of an attribute, and the selections
// that new classes with this value may join.
type attributeValue struct {
	classes    core.Ordered[*Class]
	selections []*selection
	// placed counts the workers that the search with the number search has placed on
	// executors with this value.
	search uint64
	placed int64
}

// value returns the entry of a value, and creates it if there is none.
func (x *attributeIndex) value(value string) *attributeValue {
	v := x.values[value]
	if v == nil {
		v = &attributeValue{classes: core.NewOrdered(compareIndexes)}
		x.values[value] = v
	}
	return v
}

// ofClass returns the value of the class with an index.
func (x *attributeIndex) ofClass(index int32) *attributeValue {
	if int(index) < len(x.byClass) && x.byClass[index] != nil {
		return x.byClass[index]
	}
	return &x.none
}

func (x *attributeIndex) add(class *Class, value string) *attributeValue {
	v := x.value(value)
	v.classes.Insert(class)
	if grow := int(class.index) + 1 - len(x.byClass); grow > 0 {
		x.byClass = append(x.byClass, make([]*attributeValue, grow)...)
	}
	x.byClass[class.index] = v
	return v
}

func (x *attributeIndex) remove(class *Class, value string) {
	x.value(value).classes.Remove(class)
	x.byClass[class.index] = nil
	x.dropUnused(value)
}

// dropUnused deletes a value that no class has and no selection uses.
func (x *attributeIndex) dropUnused(value string) {
	if v := x.values[value]; v != nil && v.classes.Len() == 0 && len(v.selections) == 0 {
		delete(x.values, value)
	}
}
