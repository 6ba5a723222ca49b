package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"berth.dev/api/fault"
	"berth.dev/pkg/quantity"
)

// Bounds on a document, so that aliases that name one another end. The largest
// reservation has 50,000 workers of five nodes each.
const (
	maxDepth = 64
	maxNodes = 1_000_000
)

// reader turns YAML into proto3 JSON along the message it is meant for, and
// so can say where a value is wrong.
type reader struct {
	place string
	// printed reports that Berth printed the document.
	printed bool
	depth   int
	nodes   int
}

// message renders a mapping as the JSON of a message.
func (r *reader) message(node *yaml.Node, md protoreflect.MessageDescriptor, path string) ([]byte, error) {
	pairs, err := r.pairs(node, path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteByte('{')
	for i, pair := range pairs {
		at := join(path, pair.key.Value)
		fd := field(md, pair.key.Value)
		if fd == nil {
			return nil, r.refuse(pair.key, at, "is not a field%s", didYouMean(pair.key.Value, md))
		}
		value, err := r.field(pair.value, fd, at)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%q:%s", fd.JSONName(), value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// field renders the value of a field: messages key by key, anything else whole.
func (r *reader) field(node *yaml.Node, fd protoreflect.FieldDescriptor, path string) ([]byte, error) {
	node, err := r.enter(node, path)
	if err != nil {
		return nil, err
	}
	defer func() { r.depth-- }()

	if !nested(fd) {
		return r.leaf(node, fd, path)
	}
	if !fd.IsList() {
		if isNull(node) {
			return []byte("null"), nil
		}
		return r.message(node, fd.Message(), path)
	}
	if isNull(node) {
		return []byte("[]"), nil
	}
	if node.Kind != yaml.SequenceNode {
		return nil, r.refuse(node, path, "must be a list")
	}
	var items [][]byte
	for i, item := range node.Content {
		text, err := r.message(item, fd.Message(), fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return nil, err
		}
		items = append(items, text)
	}
	return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]")), nil
}

// leaf renders a value and tries it alone, so that the error can name it.
func (r *reader) leaf(node *yaml.Node, fd protoreflect.FieldDescriptor, path string) ([]byte, error) {
	switch {
	case isNull(node):
	case fd.IsMap() && fd.MapValue().Kind() == protoreflect.Int64Kind:
		return r.resources(node, path)
	case !fd.IsMap() && !fd.IsList() && fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Duration":
		return r.duration(node, fd, path)
	}
	value, err := r.plain(node, path)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, r.refuse(node, path, "%v", err)
	}
	alone := fmt.Appendf(nil, "{%q:%s}", fd.JSONName(), text)
	if protojson.Unmarshal(alone, dynamicpb.NewMessage(fd.ContainingMessage())) != nil {
		return nil, r.refuse(node, path, "must be %s", wanted(fd))
	}
	return text, nil
}

// resources renders a mapping of resources, each value a quantity, as base units.
func (r *reader) resources(node *yaml.Node, path string) ([]byte, error) {
	pairs, err := r.pairs(node, path)
	if err != nil {
		return nil, err
	}
	amounts := make(map[string]int64, len(pairs))
	for _, pair := range pairs {
		name := pair.key.Value
		at := join(path, name)
		value, err := r.enter(pair.value, at)
		if err != nil {
			return nil, err
		}
		r.depth--
		if amounts[name], err = r.amount(value, name); err != nil {
			return nil, r.refuse(value, at, "%v", err)
		}
	}
	return json.Marshal(amounts)
}

// amount reads one quantity. REST and `get -o json` print `cpu` in base units,
// as a string of digits; such a string in a document that Berth printed keeps
// that meaning.
func (r *reader) amount(value *yaml.Node, name string) (int64, error) {
	text := value.Value
	switch tag := value.ShortTag(); {
	case value.Kind != yaml.ScalarNode || tag == "!!null" || tag == "!!bool":
		return quantity.Parse(name, "")
	case tag == "!!int":
		var n int64
		if value.Decode(&n) == nil {
			text = strconv.FormatInt(n, 10) // YAML has 0x10 and 1_000
		}
	case r.printed && value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && quantity.IsDigits(text):
		return quantity.Base(name, text)
	}
	return quantity.Parse(name, text)
}

// duration renders a duration in Go's form, such as 10m or 1h30m.
func (r *reader) duration(node *yaml.Node, fd protoreflect.FieldDescriptor, path string) ([]byte, error) {
	d, err := time.ParseDuration(node.Value)
	if err != nil || node.Kind != yaml.ScalarNode {
		return nil, r.refuse(node, path, "must be %s", wanted(fd))
	}
	return protojson.Marshal(durationpb.New(d))
}

// plain is the JSON value of a node, with strings as they are written: YAML's
// own dates are not Berth's.
func (r *reader) plain(node *yaml.Node, path string) (any, error) {
	node, err := r.enter(node, path)
	if err != nil {
		return nil, err
	}
	defer func() { r.depth-- }()

	switch node.Kind {
	case yaml.MappingNode:
		pairs, err := r.pairs(node, path)
		if err != nil {
			return nil, err
		}
		object := make(map[string]any, len(pairs))
		for _, pair := range pairs {
			if object[pair.key.Value], err = r.plain(pair.value, join(path, pair.key.Value)); err != nil {
				return nil, err
			}
		}
		return object, nil
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			if list[i], err = r.plain(item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	switch node.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		var value any
		if err := node.Decode(&value); err != nil {
			return nil, r.refuse(node, path, "%v", err)
		}
		return value, nil
	}
	return node.Value, nil
}

type pair struct{ key, value *yaml.Node }

// pairs gives the keys and values of a mapping, merges (`<<`) included: a key
// of the mapping itself comes before a merged one.
func (r *reader) pairs(node *yaml.Node, path string) ([]pair, error) {
	node, err := r.enter(node, path)
	if err != nil {
		return nil, err
	}
	defer func() { r.depth-- }()

	if node.Kind != yaml.MappingNode {
		return nil, r.refuse(node, path, "must be a mapping of keys to values")
	}
	var own, merged []pair
	known := make(map[string]bool, len(node.Content)/2)
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.ShortTag() == "!!merge" {
			more, err := r.merge(value, path)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		if known[key.Value] {
			return nil, r.refuse(key, join(path, key.Value), "is given twice")
		}
		known[key.Value] = true
		own = append(own, pair{key, value})
	}
	for _, m := range merged {
		if !known[m.key.Value] {
			known[m.key.Value] = true
			own = append(own, m)
		}
	}
	return own, nil
}

func (r *reader) merge(value *yaml.Node, path string) ([]pair, error) {
	if value.Kind != yaml.SequenceNode {
		return r.pairs(value, path)
	}
	var all []pair
	for _, item := range value.Content {
		more, err := r.pairs(item, path)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// enter follows an alias and counts how deep and how much was read.
func (r *reader) enter(node *yaml.Node, path string) (*yaml.Node, error) {
	r.nodes++
	if r.depth >= maxDepth || r.nodes > maxNodes {
		return nil, r.refuse(node, path, "is nested too deep or too large")
	}
	r.depth++
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node, nil
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
