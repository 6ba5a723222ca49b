package process

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/yamlfile"
)

// The types of options.
const (
	typeString   = "string"
	typeBool     = "bool"
	typeInt      = "int"
	typeFloat    = "float"
	typeDuration = "duration"
	typeList     = "list"
)

// typeName returns the type of an option with the value.
func typeName(name string, value reflect.Value) string {
	switch v := value.Interface().(type) {
	case string:
		return typeString
	case bool:
		return typeBool
	case int:
		return typeInt
	case float64:
		return typeFloat
	case time.Duration:
		return typeDuration
	case []string:
		return typeList
	default:
		panic(fmt.Sprintf("process: option %s has type %T", name, v))
	}
}

// wantedOf describes the permitted values of each type of flag.
var wantedOf = map[string]string{
	"duration": "a duration such as 90s, 10m or 1h30m",
	"bool":     "true or false",
	"int":      "a whole number", "int64": "a whole number", "uint64": "a whole number of 0 or more",
	"float64": "a number", "float": "a number", "string": "text", "list": "a list such as [a, b], or text such as a,b",
	"time": "a time such as 2026-01-02T15:04:05Z", "stringToString": "name=value[,name=value…]",
}

// wanted describes the permitted values of an option.
func (o Option) wanted() string {
	if o.Type == typeList && o.Form != "" {
		return "a list such as [a:1, b:2], or text such as a:1,b:2"
	}
	return wantedOf[o.Type]
}

// forms has the permitted forms of texts. A form returns what is wrong with a text, or "".
var forms = map[string]func(text string) (problem string){
	// address is an address that the process dials.
	"address": rpc.CheckAddress,
	// advertise is an address that other processes dial.
	"advertise": checkAdvertise,
	// path is the path of a file or a directory. Only a shell expands ~, and not in every place.
	"path": func(text string) string {
		if strings.HasPrefix(text, "~") {
			return "must be a path without ~, which is not expanded; use an absolute path"
		}
		return ""
	},
	// listen is an address at which the process listens.
	"listen": rpc.CheckListenAddress,
	// gateway is an address of a gateway, or its URL.
	"gateway": func(text string) string {
		return checkURL(text, "host:port, http://host:port or https://host:port", "http", "https")
	},
	// etcd is an endpoint of etcd.
	"etcd": func(text string) string {
		if path, is := strings.CutPrefix(text, "unix://"); is && path != "" && !strings.Contains(path, " ") {
			return ""
		}
		return checkURL(text, "host:port or https://host:port", "http", "https")
	},
	// member is a member of an etcd cluster.
	"member": func(text string) string {
		name, address, is := strings.Cut(text, "=")
		if !is || name == "" {
			return "must be name=host:port"
		}
		return rpc.CheckListenAddress(address)
	},
}

// checkAdvertise checks an address that other processes dial. The unspecified address would be the
// host of the process that dials it.
func checkAdvertise(text string) (problem string) {
	if problem = rpc.CheckAddress(text); problem != "" {
		return problem
	}
	host, _, _ := net.SplitHostPort(text)
	host, _, _ = strings.Cut(host, "%")
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "must be host:port with a host that other processes reach, such as 10.0.0.7:7101 or host-a:7101"
	}
	return ""
}

// checkURL checks an address that may begin with one of the schemes.
func checkURL(text, wanted string, schemes ...string) (problem string) {
	address := text
	for _, scheme := range schemes {
		if rest, is := strings.CutPrefix(text, scheme+"://"); is {
			address = strings.TrimSuffix(rest, "/")
		}
	}
	if problem = rpc.CheckAddress(address); problem != "" {
		_, reason, _ := strings.Cut(problem, "must be host:port")
		return "must be " + strings.TrimSpace(wanted) + strings.TrimSuffix(reason, " without a scheme")
	}
	return ""
}

// AddFlags declares a flag for every option of a configuration struct. The values of the fields
// are the defaults.
func AddFlags(flags *pflag.FlagSet, config any) {
	for _, o := range optionsOf(reflect.ValueOf(config)) {
		usage := o.Usage + " [" + o.Env + "]"
		switch v := o.value.Interface().(type) {
		case string:
			flags.String(o.Name, v, usage)
		case bool:
			flags.Bool(o.Name, v, usage)
		case int:
			flags.Var((*whole)(&v), o.Name, usage)
		case float64:
			flags.Float64(o.Name, v, usage)
		case time.Duration:
			flags.Duration(o.Name, v, usage)
		case []string:
			flags.StringSlice(o.Name, v, usage)
		}
	}
}

// whole is the value of a flag for a whole number.
type whole int

func (w *whole) String() string { return strconv.Itoa(int(*w)) }
func (w *whole) Type() string   { return "int" }

func (w *whole) Set(text string) error {
	n, err := parseWhole(text)
	*w = whole(n)
	return err
}

// parseWhole parses a whole number.
func parseWhole(text string) (int, error) {
	n, err := yamlfile.Whole(text)
	if err == nil && int64(int(n)) != n {
		err = strconv.ErrRange
	}
	return int(n), err
}

// setFlag sets an option to the value of its flag. The text that it returns says what is wrong.
func (o Option) setFlag(flag *pflag.Flag) (problem string) {
	if list, is := flag.Value.(pflag.SliceValue); is {
		return o.setList(list.GetSlice())
	}
	return o.setText(flag.Value.String())
}

// setText sets an option to a text.
func (o Option) setText(text string) (problem string) {
	var value any
	var err error
	switch o.Type {
	case typeString:
		value = text
	case typeBool:
		value, err = strconv.ParseBool(text)
	case typeInt:
		value, err = parseWhole(text)
	case typeFloat:
		value, err = strconv.ParseFloat(text, 64)
		if f, _ := value.(float64); math.IsNaN(f) || math.IsInf(f, 0) {
			err = strconv.ErrSyntax
		}
	case typeDuration:
		value, err = time.ParseDuration(text)
	case typeList:
		items, err := splitList(text)
		if err != nil {
			return fmt.Sprintf("must be %s, got %q", o.wanted(), text)
		}
		return o.setList(items)
	}
	if err != nil {
		return fmt.Sprintf("must be %s, got %q", o.wanted(), text) + o.hint(text)
	}
	o.value.Set(reflect.ValueOf(value))
	return ""
}

// hint explains a frequent mistake.
func (o Option) hint(text string) string {
	_, err := strconv.ParseFloat(text, 64)
	switch {
	case o.Type == typeDuration && err == nil:
		return ", which has no unit"
	case o.Type == typeInt && err == nil && len(text) > 1 && text[0] == '0':
		return ", which has a leading zero"
	}
	return ""
}

// splitList splits a list at its commas. An item in double quotes may contain commas.
func splitList(text string) ([]string, error) {
	if !strings.Contains(text, `"`) {
		return strings.Split(text, ","), nil
	}
	reader := csv.NewReader(strings.NewReader(text))
	reader.LazyQuotes, reader.TrimLeadingSpace = true, true
	return reader.Read()
}

// setList sets an option to a list. It trims each item.
func (o Option) setList(items []string) (problem string) {
	var list []string
	for i, item := range items {
		item = strings.TrimSpace(item)
		if item == "" {
			return fmt.Sprintf("item %d of the list is empty: remove it", i+1)
		}
		list = append(list, item)
	}
	o.value.Set(reflect.ValueOf(list))
	return ""
}

// CheckList returns the items of a list option of a command that is not from Command, without
// spaces around them. form is a form of Option. If an item is empty or has another form, the error
// names the option.
func CheckList(option, form string, items []string) ([]string, error) {
	o := Option{Name: option, Type: typeList, Form: form, mayBeEmpty: true,
		value: reflect.New(reflect.TypeFor[[]string]()).Elem()}
	problem := o.setList(items)
	if problem == "" {
		problem = o.check()
	}
	if problem != "" {
		return nil, fault.BadField(fault.ReasonInvalid, "--"+option, "%s", problem)
	}
	return o.value.Interface().([]string), nil
}

// setNode sets an option to a value in a file.
func (o Option) setNode(node *yaml.Node) (problem string) {
	if o.Type == typeList && node.Kind == yaml.SequenceNode {
		return o.setItems(node)
	}
	text, problem := yamlfile.Text(node, o.wanted(), tagOf[o.Type]...)
	switch {
	case problem != "":
		return problem
	case o.Type == typeBool && !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false"):
		// As a flag, 1 and t are booleans. In a file, a number in place of a boolean is a mistake.
		return fmt.Sprintf("must be %s, got %q", wantedOf[typeBool], text)
	case o.Type == typeList && text == "":
		return o.setList(nil)
	}
	return o.setText(text)
}

// tagOf has the tags that the values of each type may have in a file.
var tagOf = map[string][]string{typeBool: {"!!bool"}, typeInt: {"!!int"}, typeFloat: {"!!float", "!!int"}}

// setItems sets an option to a list in a file.
func (o Option) setItems(node *yaml.Node) (problem string) {
	items := make([]string, len(node.Content))
	for i, item := range node.Content {
		item = yamlfile.Resolve(item)
		var problem string
		switch items[i], problem = yamlfile.Text(item, "text"); {
		case item.Kind == yaml.MappingNode:
			return fmt.Sprintf("item %d of the list must be text, got a mapping: remove the space after the colon, or quote the item", i+1)
		case yamlfile.IsNull(item):
			return fmt.Sprintf("item %d of the list is empty: remove it", i+1)
		case problem != "":
			return fmt.Sprintf("item %d of the list %s", i+1, problem)
		}
	}
	return o.setList(items)
}

// check returns what is wrong with the value of an option that a source has set.
func (o Option) check() (problem string) {
	switch v := o.value.Interface().(type) {
	case string:
		if v == "" && !o.mayBeEmpty {
			return "must not be empty; the default is " + o.Default
		}
		return o.checkForm(v)
	case []string:
		if len(v) == 0 && !o.mayBeEmpty {
			return "must have at least one item; the default is " + strings.Trim(o.Default, "[]")
		}
		for _, item := range v {
			if problem := o.checkForm(item); problem != "" {
				return problem
			}
		}
	case int:
		return inRange(o, v, strconv.Atoi)
	case time.Duration:
		return inRange(o, v, time.ParseDuration)
	}
	return ""
}

// checkForm returns what is wrong with a text or an item of a list.
func (o Option) checkForm(text string) (problem string) {
	if o.Form == "" || text == "" {
		return ""
	}
	if problem = forms[o.Form](text); problem != "" {
		return fmt.Sprintf("%s, got %q", problem, text)
	}
	return ""
}

// inRange returns an error unless a value is in the range of an option.
func inRange[T cmp.Ordered](o Option, value T, parse func(string) (T, error)) (problem string) {
	least, noLeast := parse(o.Least)
	most, noMost := parse(o.Most)
	switch low, high := noLeast == nil && value < least, noMost == nil && value > most; {
	case (low || high) && noLeast == nil && noMost == nil:
		return fmt.Sprintf("must be between %s and %s, got %v", o.Least, o.Most, value)
	case low:
		return fmt.Sprintf("must be at least %s, got %v", o.Least, value)
	case high:
		return fmt.Sprintf("must be at most %s, got %v", o.Most, value)
	}
	return ""
}
