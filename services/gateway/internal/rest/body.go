package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"berth.dev/pkg/quantity"
	"berth.dev/pkg/wire"
)

// refusal returns an error about a field. grpc-gateway passes on only the text of the error.
// explain reads the field from that text again.
func refusal(field, format string, args ...any) error {
	return fmt.Errorf(format+" (field %s)", append(args, field)...)
}

// body checks a JSON body against the descriptor of the message that the body becomes. It
// rejects values that their fields do not accept. It replaces the forms that protojson does
// not read: quantities (`"cpu": "500m"`) by base units, and durations in Go's form by
// seconds.
type body struct {
	text   []byte // valid JSON
	tokens *json.Decoder
	// start is the offset at which the last call of next began to read.
	start int
	// out is the rewritten form of text up to the offset copied.
	out    bytes.Buffer
	copied int
}

// decodeBody reads one JSON object into v, which is a message or a pointer to a message.
func decodeBody(r io.Reader, v any, unmarshal func([]byte, any) error) error {
	d := json.NewDecoder(r)
	var text json.RawMessage
	var syntax *json.SyntaxError
	switch err := d.Decode(&text); {
	case errors.Is(err, io.EOF):
		return err // an empty body: all fields have their defaults
	case errors.As(err, &syntax):
		return fmt.Errorf("the body must be a JSON object: %s at byte %d", strings.ToValidUTF8(syntax.Error(), "\ufffd"),
			syntax.Offset)
	case err != nil:
		return errors.New("the body must be a JSON object: it ends too early")
	case text[0] != '{':
		return errors.New("the body must be a JSON object")
	}
	b := &body{text: text, tokens: json.NewDecoder(bytes.NewReader(text))}
	b.tokens.UseNumber()
	if err := b.message(descriptor(v), "", b.next()); err != nil {
		return err
	}
	if b.copied > 0 {
		text = append(b.out.Bytes(), text[b.copied:]...)
	}
	if err := unmarshal(text, v); err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body continues after its JSON value")
	}
	return nil
}

// descriptor returns the descriptor of v, which is a message or a pointer to a message.
func descriptor(v any) protoreflect.MessageDescriptor {
	t := reflect.TypeOf(v)
	for !t.Implements(reflect.TypeFor[proto.Message]()) {
		t = t.Elem()
	}
	return reflect.Zero(t).Interface().(proto.Message).ProtoReflect().Descriptor()
}

// next returns the next token. It must be called only where the JSON, which is valid, has
// another token.
func (b *body) next() json.Token {
	b.start = int(b.tokens.InputOffset())
	token, _ := b.tokens.Token()
	return token
}

// message checks an object. token is the first token of the object.
func (b *body) message(m protoreflect.MessageDescriptor, path string, token json.Token) error {
	if token != json.Delim('{') {
		return b.mistyped(path, "an object")
	}
	given := make([]bool, m.Fields().Len())
	for b.tokens.More() {
		name := b.next().(string)
		at := strings.TrimPrefix(path+"."+name, ".")
		field := fieldNamed(m, name)
		switch {
		case field == nil:
			return refusal(at, "there is no such field")
		case given[field.Index()]:
			return refusal(at, "it is given twice")
		}
		given[field.Index()] = true
		if err := b.field(field, at, b.next()); err != nil {
			return err
		}
	}
	b.next()
	return nil
}

// fieldNamed returns the field with the given JSON name or proto name, as proto3 JSON allows
// both. It returns nil if there is no such field.
func fieldNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := m.Fields().ByJSONName(name); field != nil {
		return field
	}
	return m.Fields().ByTextName(name)
}

// field checks the value of a field. token is the first token of the value. Null means the
// default.
func (b *body) field(field protoreflect.FieldDescriptor, path string, token json.Token) error {
	switch {
	case token == nil:
		return nil
	case field.IsMap():
		if token != json.Delim('{') {
			return b.mistyped(path, "an object")
		}
		for b.tokens.More() {
			key := b.next().(string)
			check := b.value
			if field.Name() == "resources" {
				check = b.amount
			}
			if err := check(field.MapValue(), path+"."+key, b.next()); err != nil {
				return err
			}
		}
		b.next()
	case field.IsList():
		if token != json.Delim('[') {
			return b.mistyped(path, "a list")
		}
		for i := 0; b.tokens.More(); i++ {
			if err := b.value(field, fmt.Sprintf("%s[%d]", path, i), b.next()); err != nil {
				return err
			}
		}
		b.next()
	default:
		return b.value(field, path, token)
	}
	return nil
}

// value checks one value. token is the first token of the value.
func (b *body) value(field protoreflect.FieldDescriptor, path string, token json.Token) error {
	text, isString := token.(string)
	accepted := false
	switch field.Kind() {
	case protoreflect.StringKind:
		accepted = isString
	case protoreflect.BoolKind:
		_, accepted = token.(bool)
	case protoreflect.Int32Kind:
		_, accepted = whole(token, 32)
	case protoreflect.Int64Kind:
		_, accepted = whole(token, 64)
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case wire.TimestampName:
			accepted = isString && b.alone(field)
		case wire.DurationName:
			if d, err := time.ParseDuration(text); err == nil {
				accepted = true
				seconds, _ := protojson.Marshal(durationpb.New(d)) // every Go duration has this form
				b.replace(string(seconds))
			}
		case "google.protobuf.ListValue", "google.protobuf.Struct", "google.protobuf.Value":
			return b.skip(token) // any JSON
		default:
			return b.message(field.Message(), path, token)
		}
	default:
		_, isNumber := token.(json.Number)
		accepted = (isString || isNumber) && b.alone(field)
	}
	if !accepted {
		return b.mistyped(path, wire.Accepted(field))
	}
	return nil
}

// skip reads the rest of a value. token is the first token of the value.
func (b *body) skip(token json.Token) error {
	for depth := 0; ; token = b.next() {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// whole returns the whole number with at most the given number of bits that protojson reads
// from a token. protojson accepts numbers in strings, and numbers such as 1.0 and 1e3.
func whole(token json.Token, bits int) (int64, bool) {
	text := fmt.Sprint(token)
	if n, err := strconv.ParseInt(text, 10, bits); err == nil {
		return n, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return int64(n), err == nil && n == math.Trunc(n) && math.Abs(n) < math.Ldexp(1, bits-1)
}

// alone reports whether protojson reads the last token as the value of a field.
func (b *body) alone(field protoreflect.FieldDescriptor) bool {
	value := b.token()
	if field.IsList() {
		value = "[" + value + "]"
	}
	text := fmt.Sprintf("{%q: %s}", field.JSONName(), value)
	return protojson.Unmarshal([]byte(text), dynamicpb.NewMessage(field.ContainingMessage())) == nil
}

// amount checks an amount of a resource. Amounts without a suffix are base units.
func (b *body) amount(_ protoreflect.FieldDescriptor, path string, token json.Token) error {
	_, name, _ := strings.Cut(path, "resources.")
	text, isString := token.(string)
	n, ok := whole(token, 64)
	switch {
	case isString:
		var err error
		if n, err = quantity.Base(name, text); err != nil {
			return refusal(path, "%w", err)
		}
		b.replace(strconv.FormatInt(n, 10))
		if quantity.HasSuffix(text) {
			return nil
		}
	case !ok:
		return refusal(path, "%w", quantity.NotBase(name, b.got()))
	}
	if err := quantity.CheckUnit(name, n); err != nil && !(isString && b.printed()) {
		return refusal(path, "%w", err)
	}
	return nil
}

// printed reports whether Berth printed the body. Callers may send back an answer, whose
// strings of digits are in base units.
func (b *body) printed() bool {
	var object struct{ UpdatedAt string }
	return json.Unmarshal(b.text, &object) == nil && object.UpdatedAt != ""
}

// token returns the text of the last token.
func (b *body) token() string {
	return strings.TrimLeft(string(b.text[b.start:b.tokens.InputOffset()]), " \t\r\n:,")
}

// replace replaces the last token by a text in the rewritten body.
func (b *body) replace(text string) {
	end := int(b.tokens.InputOffset())
	b.out.Write(b.text[b.copied : end-len(b.token())])
	b.out.WriteString(text)
	b.copied = end
}

// mistyped returns the error about the last token, whose type the field does not accept.
func (b *body) mistyped(path, accepted string) error {
	return refusal(path, "must be %s, got %s", accepted, b.got())
}

// got returns a description of the value whose first token is the last token.
func (b *body) got() string {
	const most = 100
	switch text := b.token(); {
	case text == "{":
		return "an object"
	case text == "[":
		return "a list"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + "…"
	default:
		return strings.ToValidUTF8(text, "\ufffd")
	}
}
