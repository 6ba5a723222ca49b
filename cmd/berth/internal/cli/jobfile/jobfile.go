package jobfile

import (
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/fault"
)

// Document is one reservation of a job file.
type Document struct {
	// Place says where it is, for messages: `jobs.yaml, document 2`.
	Place string
	// Reservation is what to apply, without what Berth sets.
	Reservation *berthv1.Reservation
	// UID is the version that it was printed from, when it was printed by
	// Berth and names one.
	UID string
}

// firstOutput is the number of the first field that Berth sets.
const firstOutput protoreflect.FieldNumber = 50

// Parse reads all documents of a file; name is used in messages. Empty
// documents are skipped; a file without any is an error. Errors are Invalid and
// name the place.
func Parse(name string, file io.Reader) ([]Document, error) {
	var documents []Document
	decoder := yaml.NewDecoder(file)
	for number := 1; ; number++ {
		var node yaml.Node
		place := fmt.Sprintf("%s, document %d", name, number)
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid(place, "%v", err)
		}
		root := node.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue
		}
		if list := listOf(root); list != nil {
			for i, item := range list {
				document, err := parseOne(fmt.Sprintf("%s, item %d", place, i+1), item)
				if err != nil {
					return nil, err
				}
				documents = append(documents, document)
			}
			continue
		}
		document, err := parseOne(place, root)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	if len(documents) == 0 {
		return nil, invalid(name, "there is no reservation in it")
	}
	return documents, nil
}

// listOf answers the items of a list as `berth get reservations` prints it,
// nil for any other document.
func listOf(root *yaml.Node) []*yaml.Node {
	if root.Kind != yaml.MappingNode {
		return nil
	}
	var items []*yaml.Node
	for i := 0; i < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "reservations":
			if root.Content[i+1].Kind != yaml.SequenceNode {
				return nil
			}
			items = root.Content[i+1].Content
		case "nextPageToken", "revision":
		default:
			return nil
		}
	}
	return items
}

func parseOne(place string, root *yaml.Node) (Document, error) {
	r := &berthv1.Reservation{}
	reader := reader{place: place}
	text, err := reader.message(root, r.ProtoReflect().Descriptor(), "")
	if err != nil {
		return Document{}, err
	}
	if err := protojson.Unmarshal(text, r); err != nil {
		return Document{}, invalid(place, "%v", err)
	}
	for _, required := range []struct{ field, value string }{{"job", r.Job}, {"stage", r.Stage}} {
		if required.value == "" {
			f := invalid(place, "%s is missing", required.field)
			f.Fields = []fault.Field{{Name: required.field, Problem: "is required"}}
			return Document{}, f
		}
	}
	document := Document{Place: place, Reservation: r, UID: r.Uid}
	strip(r)
	return document, nil
}

// strip takes away what Berth sets. A printed reservation also shows the id of
// the request that made it, which would turn an edit into a repeat, and counts
// the workers that it names.
func strip(r *berthv1.Reservation) {
	m := r.ProtoReflect()
	printed := r.Uid != ""
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if fields.Get(i).Number() >= firstOutput {
			m.Clear(fields.Get(i))
		}
	}
	if !printed {
		return
	}
	r.RequestId = nil
	if len(r.Workers) > 0 {
		r.Count = 0
	}
}

func invalid(place, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, fault.ReasonInvalid, "%s: %s", place, fmt.Sprintf(format, args...))
}
