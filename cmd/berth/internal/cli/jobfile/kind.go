package jobfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
)

// The kinds of documents. One that does not say its kind is a reservation.
const (
	kindReservation = "reservation"
	kindSKU         = "sku"
	kindPool        = "pool"
)

var kinds = []string{kindReservation, kindSKU, kindPool}

// kind takes `kind` out of a mapping and answers it, or the given one where
// there is none.
func (r *reader) kind(root *yaml.Node, kind string) (*yaml.Node, string, error) {
	if root.Kind != yaml.MappingNode {
		return root, kind, nil
	}
	said := false
	rest := *root
	rest.Content = nil
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		switch {
		case key.Value != "kind":
			rest.Content = append(rest.Content, key, value)
		case said:
			return nil, "", r.refuse(key, "kind", "is given twice")
		case !slices.Contains(kinds, value.Value):
			return nil, "", r.refuse(value, "kind", "must be one of %s", strings.Join(kinds, ", "))
		default:
			kind, said = value.Value, true
		}
	}
	return &rest, kind, nil
}

// into reads a mapping into a message.
func (r *reader) into(root *yaml.Node, m proto.Message) error {
	text, err := r.message(root, m.ProtoReflect().Descriptor(), "")
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return invalid(r.place, "%v", err)
	}
	return nil
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
