package jobfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"berth.dev/api/fault"
)

// The kinds of documents. One that does not say its kind is a reservation.
const (
	kindReservation = "reservation"
	kindSKU         = "sku"
	kindPool        = "pool"
)

var kinds = []string{kindReservation, kindSKU, kindPool}

// kind removes `kind` from a resolved document and returns it, or the given one if
// there is none.
func (r *reader) kind(root *yaml.Node, kind string) (string, error) {
	i := find(root, "kind")
	if i < 0 {
		return kind, nil
	}
	value := root.Content[i+1]
	if !slices.Contains(kinds, value.Value) {
		return "", r.refuse(value, "kind", "must be one of %s", strings.Join(kinds, ", "))
	}
	root.Content = slices.Delete(root.Content, i, i+2)
	return value.Value, nil
}

// find returns the index of a key in the content of a mapping; -1 if it has none.
func find(node *yaml.Node, key string) int {
	for i := 0; node.Kind == yaml.MappingNode && i < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// require refuses a document without a field that it cannot do without.
func (r *reader) require(field, value string) error {
	if value != "" {
		return nil
	}
	f := invalid(r.place, "%s is missing", field)
	f.Fields = []fault.Field{{Name: field, Problem: "is required"}}
	return f
}
