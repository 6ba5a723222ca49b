package jobfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// field returns the field with a JSON name or, as proto3 JSON allows, a proto name.
func field(md protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(key); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(key)
}

// nested reports whether the field is a message of Berth or a list of such messages.
// Durations and times are messages of another package and count as single values.
func nested(fd protoreflect.FieldDescriptor) bool {
	return !fd.IsMap() && fd.Message() != nil && fd.Message().ParentFile().Package() == "berth.v1"
}

// wanted describes the values that a field accepts, given a value that it does not accept.
func wanted(fd protoreflect.FieldDescriptor, node *yaml.Node) string {
	switch {
	case fd.IsMap() && node.Kind == yaml.MappingNode:
		return "a mapping, each value " + wantedOne(fd.MapValue(), node.Content...) // the keys are strings
	case fd.IsMap():
		return "a mapping, each value " + wantedOne(fd.MapValue())
	case fd.IsList() && node.Kind == yaml.SequenceNode:
		return "a list, each item " + wantedOne(fd, node.Content...)
	case fd.IsList():
		return "a list, each item " + wantedOne(fd)
	}
	return wantedOne(fd, node)
}

// wantedOne describes the values that one element of a field accepts, given the elements that it has.
func wantedOne(fd protoreflect.FieldDescriptor, nodes ...*yaml.Node) string {
	quotable := func(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag != "!!str" }
	switch {
	case fd.Kind() != protoreflect.StringKind || wire.Word(fd) != "":
		return wire.Accepted(fd)
	case slices.ContainsFunc(nodes, quotable):
		return "a string (quote it)"
	}
	return "a string"
}

// didYouMean suggests the field whose name is closest to a wrong key.
func didYouMean(key string, md protoreflect.MessageDescriptor) string {
	best, bestDistance := "", 3
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Number() >= firstOutput {
			continue
		}
		if d := fault.Distance(strings.ToLower(key), strings.ToLower(fd.JSONName())); d < bestDistance {
			best, bestDistance = fd.JSONName(), d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}
