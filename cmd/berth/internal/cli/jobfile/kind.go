package jobfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/api/fault"
)

// The kinds of documents. A document without a kind is a reservation.
const (
	kindReservation = "reservation"
	kindSKU         = "sku"
	kindPool        = "pool"
)

var kinds = []string{kindReservation, kindSKU, kindPool}

// kind removes `kind` from a resolved document and returns its value. The argument kind
// is the default, except for a single SKU or pool that Berth printed.
func (r *reader) kind(root *yaml.Node, kind string) (string, error) {
	i := find(root, "kind")
	if i < 0 && kind == kindReservation && find(root, "updatedAt") >= 0 && find(root, "attributes") >= 0 {
		// `berth get skus NAME` or `berth get pools NAME` printed the document.
		if find(root, "resources") >= 0 {
			return kindSKU, nil
		}
		return kindPool, nil
	}
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

// find returns the index of a key in the content of a mapping, or -1 if the key is missing.
func find(node *yaml.Node, key string) int {
	for i := 0; node.Kind == yaml.MappingNode && i < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// require returns an error if a required field is missing.
func (r *reader) require(m protoreflect.Message, required []protoreflect.Name) error {
	for _, field := range required {
		if !m.Has(m.Descriptor().Fields().ByName(field)) {
			f := invalid(r.place, "%s is missing", field)
			f.Fields = []fault.Field{{Name: string(field), Problem: "is required"}}
			return f
		}
	}
	return nil
}
