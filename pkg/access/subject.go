package access

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// subject is what a request is about, and the request's ID. A text is empty if the request
// does not have it.
type subject struct {
	job, stage, name, id, executor, service, group, disableRequestID, requestID string
	// selector has the IDs and attributes of the executors that the request selects, and ids
	// the IDs of its volumes.
	selector, ids string
}

// object names the job, the reservation, the executor or whatever the request is about.
func (s subject) object() string {
	names := []string{s.job, s.stage, s.name, s.id, s.executor, s.service, s.group, s.disableRequestID, s.selector, s.ids}
	return strings.Join(slices.DeleteFunc(names, func(name string) bool { return name == "" }), "/")
}

// text returns where the subject has the text of a field with a name; nil for other fields.
func (s *subject) text(name protoreflect.Name) *string {
	switch name {
	case "job":
		return &s.job
	case "stage":
		return &s.stage
	case "name":
		return &s.name
	case "id":
		return &s.id
	case "executor":
		return &s.executor
	case "service":
		return &s.service
	case "group":
		return &s.group
	case "disable_request_id":
		return &s.disableRequestID
	case "request_id":
		return &s.requestID
	}
	return nil
}

// innerFields has the fields with the messages that name the object instead of the request.
var innerFields = []protoreflect.Name{"reservation", "sku", "pool"}

// subjectOf returns the subject of a request, which may be nil.
func subjectOf(request proto.Message) subject {
	if request == nil {
		return subject{}
	}
	outer, inner := subject{}, (*subject)(nil)
	message := request.ProtoReflect()
	for i := range message.Descriptor().Fields().Len() {
		f := message.Descriptor().Fields().Get(i)
		switch {
		case isText(f):
			if to := outer.text(f.Name()); to != nil {
				*to = message.Get(f).String()
			}
		case isSelector(f) && message.Has(f):
			if found, ok := message.Get(f).Message().Interface().(*berthv1.ExecutorSelector); ok {
				outer.selector = selected(found)
			}
		case isIDs(f):
			for i := range message.Get(f).List().Len() {
				outer.addID(message.Get(f).List().Get(i).String())
			}
		case isInner(f) && message.Has(f):
			found := subjectOf(message.Get(f).Message().Interface())
			inner = &found
		}
	}
	return outer.with(inner)
}

func isText(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind && f.Cardinality() != protoreflect.Repeated
}

// isIDs reports whether a field has the IDs of volumes.
func isIDs(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind && f.IsList() && f.Name() == "ids"
}

// addID adds the ID of a volume. It cuts long lists off.
func (s *subject) addID(id string) {
	if len(s.ids) >= maxScanned {
		return
	}
	if s.ids != "" {
		s.ids += ","
	}
	s.ids += id
	s.ids = s.ids[:min(len(s.ids), maxScanned)]
}

func isInner(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.MessageKind && !f.IsList() && slices.Contains(innerFields, f.Name())
}

func isSelector(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.MessageKind && f.Name() == "selector"
}

// selected names the selected executors. It cuts long lists off.
func selected(m *berthv1.ExecutorSelector) string {
	parts := slices.Clone(m.GetIds()[:min(len(m.GetIds()), maxScanned)])
	for _, name := range slices.Sorted(maps.Keys(m.GetAttributes())) {
		parts = append(parts, name+"="+m.GetAttributes()[name])
	}
	text := strings.Join(parts, ",")
	return text[:min(len(text), maxScanned)]
}

// with returns the subject of a request whose inner message, if it has one, is about inner.
func (s subject) with(inner *subject) subject {
	if inner == nil {
		return s
	}
	inner.requestID = cmp.Or(s.requestID, inner.requestID)
	return *inner
}

// maxScanned is the maximum length of a text that scan returns, in bytes. It is above the
// length of every valid name.
const maxScanned = 2 * maxAuditText

// maxSelector is the maximum size of an encoded selector that scan decodes, in bytes. A longer
// one has no valid request.
const maxSelector = 256 << 10

// scan returns the subject of an encoded request without decoding the request, which may
// take a hundred times the memory of the frame. It cuts long texts off.
func scan(method string, frame []byte) (subject, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return subject{}, nil // the server answers that it has no such method
	}
	outer, inner := subject{}, (*subject)(nil)
	var selector *berthv1.ExecutorSelector
	err = scanFields(frame, found.(protoreflect.MethodDescriptor).Input(), &outer, &inner, &selector)
	outer.selector = selected(selector)
	if err != nil {
		return subject{}, fault.New(fault.Invalid, fault.ReasonInvalid, "the request of %s cannot be decoded", method).
			Because(err)
	}
	return outer.with(inner), nil
}

// scanFields adds the texts of a message to a subject. As in every decoder of protobuf, the
// last value of a field counts, and a message that occurs several times is merged.
func scanFields(message []byte, kind protoreflect.MessageDescriptor, to *subject, inner **subject,
	selector **berthv1.ExecutorSelector) error {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, wire, message); n < 0 {
			return protowire.ParseError(n)
		}
		f := kind.Fields().ByNumber(number)
		if f == nil || wire != protowire.BytesType {
			message = message[n:]
			continue
		}
		value, _ := protowire.ConsumeBytes(message)
		message = message[n:]
		switch {
		case isText(f):
			if text := to.text(f.Name()); text != nil {
				*text = string(value[:min(len(value), maxScanned)])
			}
		case isIDs(f):
			to.addID(string(value[:min(len(value), maxScanned)]))
		case isInner(f) && inner != nil:
			if *inner == nil {
				*inner = &subject{}
			}
			if err := scanFields(value, f.Message(), *inner, nil, nil); err != nil {
				return err
			}
		case isSelector(f) && selector != nil && len(value) <= maxSelector:
			if *selector == nil {
				*selector = &berthv1.ExecutorSelector{}
			}
			if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(value, *selector); err != nil {
				return err
			}
		}
	}
	return nil
}

// first returns the subject of the first message of a stream.
func first(method string, message any) (subject, error) {
	switch m := message.(type) {
	case proto.Message:
		return subjectOf(m), nil
	case *rpc.Frame:
		return scan(method, m.Bytes)
	}
	return subject{}, nil
}
