package jobfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"berth.dev/api/fault"
	"berth.dev/pkg/quantity"
	"berth.dev/pkg/wire"
	"berth.dev/pkg/yamlfile"
)

// Bounds on a document, so that resolve ends if aliases are recursive. The largest
// reservation has 50,000 workers of five nodes each.
const (
	maxDepth = 64
	maxNodes = 1_000_000
)

// reader converts YAML to proto3 JSON. It follows the descriptor of the message, so that
// an error can name the line and the field.
type reader struct {
	place string
	// printed is set if Berth printed the document.
	printed bool
	nodes   int
}

// resolve returns a copy of a node without aliases and merges (`<<`). A key of the
// mapping itself overrides the same key of a merged mapping. Keys become strings. Scalars
// other than numbers, booleans and null also become strings, because Berth does not use
// YAML's dates.
func (r *reader) resolve(node *yaml.Node, path string, depth int) (*yaml.Node, error) {
	r.nodes++
	if depth >= maxDepth || r.nodes > maxNodes {
		return nil, r.refuse(node, path, "is nested too deep or too large")
	}
	resolved := *node
	resolved.Content = nil
	switch node.Kind {
	case yaml.AliasNode:
		return r.resolve(node.Alias, path, depth+1)
	case yaml.ScalarNode:
		if !slices.Contains([]string{"!!null", "!!bool", "!!int", "!!float"}, node.ShortTag()) {
			resolved.Tag = "!!str"
		} else if err := node.Decode(new(any)); err != nil {
			return nil, r.refuse(node, path, "%v", err)
		} else if _, err := yamlfile.Whole(node.Value); errors.Is(err, strconv.ErrSyntax) && node.ShortTag() == "!!int" {
			// YAML reads 0012 as 10.
			return nil, r.refuse(node, path, "must be a number without a leading zero, or text in quotes, got %s", node.Value)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			item, err := r.resolve(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			if err != nil {
				return nil, err
			}
			resolved.Content = append(resolved.Content, item)
		}
	case yaml.MappingNode:
		var merged []*yaml.Node
		known := make(map[string]bool, len(node.Content)/2)
		for i := 0; i < len(node.Content); i += 2 {
			key, at := node.Content[i], join(path, node.Content[i].Value)
			merge := key.ShortTag() == "!!merge"
			if merge {
				at = path
			} else if known[key.Value] {
				return nil, r.refuse(key, at, "is given twice")
			}
			value, err := r.resolve(node.Content[i+1], at, depth+1)
			if err != nil {
				return nil, err
			}
			switch {
			case merge && value.Kind == yaml.SequenceNode:
				merged = append(merged, value.Content...)
			case merge:
				merged = append(merged, value)
			default:
				known[key.Value] = true
				resolved.Content = append(resolved.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key.Value,
					Line: key.Line}, value)
			}
		}
		for _, m := range merged {
			if m.Kind != yaml.MappingNode {
				return nil, r.refuse(m, path, "must be a mapping of keys to values")
			}
			for i := 0; i < len(m.Content); i += 2 {
				if key := m.Content[i].Value; !known[key] {
					known[key] = true
					resolved.Content = append(resolved.Content, m.Content[i:i+2]...)
				}
			}
		}
	}
	return &resolved, nil
}

// into reads a resolved mapping into a message.
func (r *reader) into(root *yaml.Node, m proto.Message) error {
	value, err := r.message(root, m.ProtoReflect().Descriptor(), "")
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = protojson.Unmarshal(text, m)
	}
	if err != nil {
		return invalid(r.place, "%v", err)
	}
	return nil
}

// message returns the JSON value of a mapping that represents a message.
func (r *reader) message(node *yaml.Node, md protoreflect.MessageDescriptor, path string) (map[string]any, error) {
	if node.Kind != yaml.MappingNode {
		return nil, r.refuse(node, path, "must be a mapping of keys to values")
	}
	fields := map[string]any{}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		at, fd := join(path, key.Value), field(md, key.Value)
		if fd == nil {
			return nil, r.refuse(key, at, "is not a field%s", didYouMean(key.Value, md))
		}
		if _, twice := fields[fd.JSONName()]; twice {
			return nil, r.refuse(key, at, "is given twice")
		}
		value, err := r.field(node.Content[i+1], fd, at)
		if err != nil {
			return nil, err
		}
		fields[fd.JSONName()] = value
	}
	return fields, nil
}

// field returns the JSON value of a field. If the value is not a message of Berth, field
// decodes the value separately, so that an error can name the field.
func (r *reader) field(node *yaml.Node, fd protoreflect.FieldDescriptor, path string) (value any, err error) {
	switch {
	case isNull(node):
		return nil, nil
	case nested(fd) && fd.IsList():
		if node.Kind != yaml.SequenceNode {
			return nil, r.refuse(node, path, "must be a list")
		}
		items := make([]any, len(node.Content))
		for i, item := range node.Content {
			if items[i], err = r.message(item, fd.Message(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return items, nil
	case nested(fd):
		return r.message(node, fd.Message(), path)
	case fd.IsMap() && fd.MapValue().Kind() == protoreflect.Int64Kind:
		return r.resources(node, path)
	case !fd.IsMap() && !fd.IsList() && fd.Message() != nil && fd.Message().FullName() == wire.DurationName:
		d, err := time.ParseDuration(node.Value)
		if err != nil || node.Kind != yaml.ScalarNode {
			return nil, r.refuse(node, path, "must be %s", wanted(fd, node))
		}
		text, err := protojson.Marshal(durationpb.New(d))
		return json.RawMessage(text), err
	}
	value = plain(node)
	text, err := json.Marshal(map[string]any{fd.JSONName(): value})
	if err != nil || protojson.Unmarshal(text, dynamicpb.NewMessage(fd.ContainingMessage())) != nil {
		return nil, r.refuse(node, path, "must be %s", wanted(fd, node))
	}
	return value, nil
}

// plain returns the JSON value of a resolved node. It does not use Decode for mappings,
// because Decode compares each key with all other keys.
func plain(node *yaml.Node) (value any) {
	switch node.Kind {
	case yaml.MappingNode:
		object := make(map[string]any, len(node.Content)/2)
		for i := 0; i < len(node.Content); i += 2 {
			object[node.Content[i].Value] = plain(node.Content[i+1])
		}
		return object
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			list[i] = plain(item)
		}
		return list
	}
	_ = node.Decode(&value) // cannot fail: resolve has decoded the same scalar
	return value
}

// resources returns the amounts of a mapping of resources in base units. Each value of
// the mapping is a quantity.
func (r *reader) resources(node *yaml.Node, path string) (any, error) {
	if node.Kind != yaml.MappingNode {
		return nil, r.refuse(node, path, "must be a mapping of keys to values")
	}
	amounts := make(map[string]int64, len(node.Content)/2)
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		n, err := r.amount(value, name)
		if err != nil {
			return nil, r.refuse(value, join(path, name), "%v", err)
		}
		amounts[name] = n
	}
	return amounts, nil
}

// amount reads one quantity. REST and `get -o json` print `cpu` in base units as a string of
// digits. So in a document that Berth printed, a quoted string of digits is in base units.
func (r *reader) amount(value *yaml.Node, name string) (int64, error) {
	text := value.Value
	switch tag := value.ShortTag(); {
	case value.Kind != yaml.ScalarNode || tag == "!!null" || tag == "!!bool":
		return quantity.Parse(name, "")
	case tag == "!!int":
		var n int64
		if value.Decode(&n) == nil {
			text = strconv.FormatInt(n, 10) // YAML allows 0x10 and 1_000
		}
	case r.printed && value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && quantity.IsDigits(text):
		return quantity.Base(name, text)
	}
	return quantity.Parse(name, text)
}

func (r *reader) refuse(node *yaml.Node, path, format string, args ...any) *fault.Error {
	problem := fmt.Sprintf(format, args...)
	place := fmt.Sprintf("%s, line %d", r.place, node.Line)
	if path == "" {
		return invalid(place, "it %s", problem)
	}
	f := invalid(place, "%s %s", path, problem)
	f.Fields = []fault.Field{{Name: path, Problem: problem}}
	return f
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }
