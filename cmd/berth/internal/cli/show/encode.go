package show

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// compact is JSON as REST answers it: fields with defaults are given.
func compact(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its blanks on purpose.
	var b bytes.Buffer
	err = json.Compact(&b, text)
	return b.Bytes(), err
}

// JSONLine is a message as REST answers it, on one line.
func JSONLine(m proto.Message) ([]byte, error) {
	text, err := compact(m)
	return append(text, '\n'), err
}

// JSON is a message as REST answers it, indented.
func JSON(m proto.Message) ([]byte, error) {
	text, err := compact(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// YAML is the same document as JSON, in the same order of fields.
func YAML(m proto.Message) ([]byte, error) {
	text, err := compact(m)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	block(&node)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return nil, err
	}
	return b.Bytes(), encoder.Close()
}

// block takes JSON's braces and quotes away; the encoder puts quotes back where
// a string would read as something else.
func block(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		block(child)
	}
}
