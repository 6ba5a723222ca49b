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

// JSON returns the JSON of the REST API, indented.
func JSON(m proto.Message) ([]byte, error) {
	text, err := encoding.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, text, "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

// YAML returns the same document as JSON, in the same order. Resources have suffixes
// (`cpu: 2000m`, `memory: 4Gi`), so the text has the same meaning in a job file and in a
// REST request.
func YAML(m proto.Message) ([]byte, error) {
	text, err := encoding.Marshal(m)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	suffix(node.Content[0], m.ProtoReflect().Descriptor())
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
