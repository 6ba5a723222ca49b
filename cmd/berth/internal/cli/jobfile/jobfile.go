package jobfile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/quantity"
)

// Document is one document of a job file without output fields. Exactly one of
// Reservation, SKU and Pool is not nil.
type Document struct {
	// Place is the position of the document for messages: `jobs.yaml, document 2`.
	Place       string
	Reservation *berthv1.Reservation
	SKU         *berthv1.Sku
	Pool        *berthv1.Pool
	// UID is the uid of the reservation, if Berth printed the document.
	UID string
	// Warnings describes values that are valid but probably wrong. Each warning names its
	// field.
	Warnings []string
}

// firstOutput is the number of the first output field of a reservation. All later fields are
// output fields.
const firstOutput protoreflect.FieldNumber = 50

// Parse reads all documents of a file. Its errors are faults of kind Invalid and contain
// the name of the file and the place in it. Parse returns an error if all documents are
// empty.
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
		if kind, list := listOf(root); list != nil {
			for i, item := range list {
				document, err := parseOne(fmt.Sprintf("%s, item %d", place, i+1), item, kind)
				if err != nil {
					return nil, err
				}
				documents = append(documents, document)
			}
			continue
		}
		document, err := parseOne(place, root, kindReservation)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	if len(documents) == 0 {
		return nil, invalid(name, "the file contains no document")
	}
	return documents, nil
}

// listOf returns the items of a list from `berth get` and their kind. It returns no items
// for any other document.
func listOf(root *yaml.Node) (kind string, items []*yaml.Node) {
	if root.Kind != yaml.MappingNode {
		return "", nil
	}
	for i := 0; i < len(root.Content); i += 2 {
		switch word := root.Content[i].Value; word {
		case "reservations", "skus", "pools":
			if root.Content[i+1].Kind != yaml.SequenceNode || kind != "" {
				return "", nil
			}
			kind, items = strings.TrimSuffix(word, "s"), root.Content[i+1].Content
		case "nextPageToken", "revision", "cursor", "stages":
		default:
			return "", nil
		}
	}
	return kind, items
}

// parseOne reads a document. kind is the default kind.
func parseOne(place string, root *yaml.Node, kind string) (Document, error) {
	document, reader := Document{Place: place}, reader{place: place}
	root, err := reader.resolve(root, "", 0)
	if err != nil {
		return document, err
	}
	if kind, err = reader.kind(root, kind); err != nil {
		return document, err
	}
	reader.printed = find(root, "updatedAt") >= 0 // an output field
	var m proto.Message
	required := []protoreflect.Name{"name"}
	switch kind {
	case kindSKU:
		document.SKU = &berthv1.Sku{}
		m = document.SKU
	case kindPool:
		document.Pool = &berthv1.Pool{}
		m = document.Pool
	default:
		document.Reservation = &berthv1.Reservation{}
		m = document.Reservation
		required = []protoreflect.Name{"job", "stage"}
	}
	if err := reader.into(root, m); err != nil {
		return document, err
	}
	document.strip(m.ProtoReflect())
	document.warn("resources", document.SKU.GetResources())
	document.warn("constraints.resources", document.Reservation.GetConstraints().GetResources())
	return document, reader.require(m.ProtoReflect(), required)
}

// warn adds warnings about amounts that are probably too small.
func (d *Document) warn(field string, resources map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if doubt := quantity.Doubt(name, resources[name]); doubt != nil {
			d.Warnings = append(d.Warnings, fmt.Sprintf("%s.%s: %v", field, name, doubt))
		}
	}
}

// strip removes the output fields from the document's message. From a reservation that
// Berth printed, strip also removes the request ID, which would turn an edit into a
// retry. It removes the count if the reservation lists workers.
func (d *Document) strip(m protoreflect.Message) {
	r := d.Reservation
	d.UID = r.GetUid()
	Strip(m.Interface())
	if d.UID == "" {
		return
	}
	r.RequestId = nil
	if len(r.Workers) > 0 {
		r.Count = 0
	}
}

// Strip removes the output fields from a reservation, SKU or pool.
func Strip(message proto.Message) {
	m := message.ProtoReflect()
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.Number() >= firstOutput || fd.Name() == "updated_at" {
			m.Clear(fd)
		}
		return true
	})
}

func invalid(place, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, fault.ReasonInvalid, "%s: %s", place, fmt.Sprintf(format, args...))
}
