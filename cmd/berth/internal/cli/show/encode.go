package show

import (
	"bytes"
	"encoding/json"
	"strconv"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/pkg/quantity"
)

// encoding produces the JSON of the REST API, which includes fields with default values.
// protojson varies the spaces of its output on purpose, so JSON and JSONLine format the
// text again.
var encoding = protojson.MarshalOptions{EmitDefaultValues: true}

// JSONLine returns the JSON of the REST API on one line.
func JSONLine(m proto.Message) ([]byte, error) {
	text, err := encoding.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Compact(&b, text)
	b.WriteByte('\n')
	return b.Bytes(), err
}

// Part is a part of a document: a message, or the list of messages of a field. A part
// without a name must be the only one, and is the whole document.
type Part struct {
	Name  string
	Value proto.Message
	List  []proto.Message
}

// Field returns a named part with one message.
func Field(name string, m proto.Message) Part { return Part{Name: name, Value: m} }

// List returns a named part with a list of messages.
func List[M proto.Message](name string, list []M) Part {
	part := Part{Name: name}
	for _, m := range list {
		part.List = append(part.List, m)
	}
	return part
}

// JSON returns the JSON of the REST API, indented.
func JSON(parts ...Part) ([]byte, error) {
	text, err := compact(parts)
	if err != nil {
		return nil, err
	}
	return indentedJSON(text)
}

// YAML returns the same document as JSON, in the same order. Resources have suffixes
// (`cpu: 2000m`, `memory: 4Gi`), so the text has the same meaning in a job file and in a
// REST request.
func YAML(parts ...Part) ([]byte, error) {
	text, err := compact(parts)
	if err != nil {
		return nil, err
	}
	return yamlOf(text, func(root *yaml.Node) {
		if parts[0].Name == "" {
			suffix(root, parts[0].Value.ProtoReflect().Descriptor())
			return
		}
		for i, part := range parts {
			value := root.Content[2*i+1]
			if part.Value != nil {
				suffix(value, part.Value.ProtoReflect().Descriptor())
			}
			for j, m := range part.List {
				suffix(value.Content[j], m.ProtoReflect().Descriptor())
			}
		}
	})
}

// Request returns a message as a document of a job file, without fields that have their
// default value.
func Request(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	return yamlOf(text, func(root *yaml.Node) {
		suffix(root, m.ProtoReflect().Descriptor())
		for i := 0; i < len(root.Content); i += 2 {
			if root.Content[i].Value == "workers" {
				nameIndexes(root.Content[i+1])
			}
		}
	})
}

// nameIndexes adds the worker index 0 to a list of workers. It is a default value, but
// without it a worker has no name.
func nameIndexes(workers *yaml.Node) {
	for _, worker := range workers.Content {
		if worker.Content[0].Value != "index" {
			worker.Content = append([]*yaml.Node{{Kind: yaml.ScalarNode, Value: "index"}, {Kind: yaml.ScalarNode, Value: "0"}},
				worker.Content...)
		}
	}
}

// ValueJSON returns the indented JSON of a value that is not a message.
func ValueJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return indentedJSON(text)
}

// ValueYAML returns the document of ValueJSON as YAML.
func ValueYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return yamlOf(text, func(*yaml.Node) {})
}

// compact returns the JSON of parts, without defined spaces.
func compact(parts []Part) ([]byte, error) {
	if parts[0].Name == "" {
		return encoding.Marshal(parts[0].Value)
	}
	var b bytes.Buffer
	for i, part := range parts {
		b.WriteString([]string{"{", ","}[min(i, 1)] + strconv.Quote(part.Name) + ":")
		if part.Value != nil {
			text, err := encoding.Marshal(part.Value)
			if err != nil {
				return nil, err
			}
			b.Write(text)
			continue
		}
		b.WriteByte('[')
		for j, m := range part.List {
			text, err := encoding.Marshal(m)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				b.WriteByte(',')
			}
			b.Write(text)
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func indentedJSON(text []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Indent(&b, text, "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

// yamlOf converts JSON to YAML. fix may change the document before.
func yamlOf(text []byte, fix func(root *yaml.Node)) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	fix(node.Content[0])
	block(&node)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return nil, err
	}
	return b.Bytes(), encoder.Close()
}

// suffix replaces the amounts of resources in a message's document with quantities that
// have a suffix.
func suffix(node *yaml.Node, md protoreflect.MessageDescriptor) {
	if node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i < len(node.Content); i += 2 {
		fd, value := md.Fields().ByJSONName(node.Content[i].Value), node.Content[i+1]
		switch {
		case fd == nil || fd.Message() == nil:
		case fd.IsMap() && fd.MapValue().Kind() == protoreflect.Int64Kind:
			for j := 0; j < len(value.Content); j += 2 {
				if n, err := strconv.ParseInt(value.Content[j+1].Value, 10, 64); err == nil {
					value.Content[j+1] = &yaml.Node{Kind: yaml.ScalarNode, Value: quantity.String(value.Content[j].Value, n)}
				}
			}
		case fd.IsMap() && fd.MapValue().Message() != nil:
			for j := 1; j < len(value.Content); j += 2 {
				suffix(value.Content[j], fd.MapValue().Message())
			}
		case fd.IsList():
			for _, item := range value.Content {
				suffix(item, fd.Message())
			}
		case !fd.IsMap():
			suffix(value, fd.Message())
		}
	}
}

// block removes the braces and quotes of JSON. The encoder quotes strings that YAML would read
// as another type.
func block(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		block(child)
	}
}
