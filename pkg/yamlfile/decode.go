package yamlfile

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the values of a file after its aliases are resolved.
const maxNodes = 1_000_000

// maxDepth bounds the merges (<<) around a mapping, which may contain itself.
const maxDepth = 16

// Decode reads the only document of a file into a struct, whose fields have the names in their
// tags `yaml:"…"`. It does not convert values. A list or a mapping without a value is empty; any
// other field without a value is a problem. isEmpty is set if the file has no document.
func Decode(file, what string, text []byte, into any) (isEmpty bool, problems []Problem) {
	root, problems := parse(file, what, text)
	if root == nil {
		return len(problems) == 0, problems
	}
	d := decoder{file: file}
	d.decode(root, "", reflect.ValueOf(into).Elem())
	return false, d.problems
}

type decoder struct {
	file     string
	nodes    int
	problems []Problem
	// depth is the number of merges (<<) around the current mapping.
	depth int
}

func (d *decoder) refuse(node *yaml.Node, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, node.Line, path, fmt.Sprintf(format, args...)})
}

func (d *decoder) decode(node *yaml.Node, path string, to reflect.Value) {
	node = Resolve(node)
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.refuse(node, path, "the file has more than %d values", maxNodes)
		}
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		switch {
		case node.Kind == yaml.MappingNode:
			d.fields(node, path, to, map[string]bool{})
		case !IsNull(node):
			d.refuse(node, path, "must be a mapping, got %s", Kind(node))
		}
	case reflect.Slice:
		switch {
		case node.Kind == yaml.SequenceNode:
			to.Set(reflect.MakeSlice(to.Type(), len(node.Content), len(node.Content)))
			for i, item := range node.Content {
				d.decode(item, fmt.Sprintf("%s[%d]", path, i), to.Index(i))
			}
		case !IsNull(node):
			d.refuse(node, path, "must be a list such as [a, b], got %s", Kind(node))
		}
	default:
		if problem := scalar(node, to); problem != "" {
			d.refuse(node, path, "%s", problem)
		}
	}
}

// fields decodes the entries of a mapping into a struct. It skips the keys that are set, and adds
// the others to them.
func (d *decoder) fields(node *yaml.Node, path string, to reflect.Value, set map[string]bool) {
	entries, problems := Entries(d.file, path, node)
	d.problems = append(d.problems, problems...)
	var merged []*yaml.Node
	var names []string
	for i := range to.NumField() {
		names = append(names, to.Type().Field(i).Tag.Get("yaml"))
	}
	for _, e := range entries {
		i := slices.Index(names, e.Key)
		switch {
		case set[e.Key]:
		case e.Key == "<<" && e.Value.Kind == yaml.SequenceNode:
			merged = append(merged, e.Value.Content...)
		case e.Key == "<<":
			merged = append(merged, e.Value)
		case i < 0:
			d.refuse(&yaml.Node{Line: e.Line}, Join(path, e.Key), "unknown key; must be one of %s", strings.Join(names, ", "))
		default:
			set[e.Key] = true
			d.decode(e.Value, Join(path, e.Key), to.Field(i))
		}
	}
	for _, m := range merged {
		m = Resolve(m)
		switch d.depth++; {
		case m.Kind != yaml.MappingNode:
			d.refuse(m, path, "<< must be a mapping, got %s", Kind(m))
		case d.depth > maxDepth:
			d.refuse(m, path, "<< is nested too deep")
		default:
			d.fields(m, path, to, set)
		}
		d.depth--
	}
}

// pemStart is the beginning of a text in PEM, the only one with more than one line.
const pemStart = "-----BEGIN "

// scalar sets a value to a scalar.
func scalar(node *yaml.Node, to reflect.Value) (problem string) {
	wanted, tags := "text", []string{}
	switch to.Kind() {
	case reflect.Bool:
		wanted, tags = "true or false", []string{"!!bool"}
	case reflect.Int, reflect.Int64:
		wanted, tags = "a whole number", []string{"!!int"}
	case reflect.Float64:
		wanted, tags = "a number", []string{"!!int", "!!float"}
	}
	text, problem := Text(node, wanted, tags...)
	if strings.HasPrefix(node.Value, pemStart) && to.Kind() == reflect.String {
		line := *node
		line.Value = strings.NewReplacer("\r", "", "\n", "").Replace(node.Value)
		_, problem = Text(&line, wanted, tags...)
		text = node.Value
	}
	if problem != "" {
		return problem
	}
	ok := true
	switch to.Kind() {
	case reflect.String:
		to.SetString(text)
	case reflect.Bool:
		ok = strings.EqualFold(text, "true") || strings.EqualFold(text, "false")
		to.SetBool(strings.EqualFold(text, "true"))
	case reflect.Int, reflect.Int64:
		n, err := Whole(text)
		ok = err == nil
		to.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		ok = err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
		to.SetFloat(n)
	default:
		panic(fmt.Sprintf("yamlfile: a field has the type %v", to.Type()))
	}
	if !ok {
		return fmt.Sprintf("must be %s, got %q", wanted, text)
	}
	return ""
}

// Whole parses a whole number. It refuses leading zeros: some programs read 010 as 8.
func Whole(text string) (int64, error) {
	digits := strings.TrimLeft(text, "+-")
	if len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0123456789_") == "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 0, 64)
}
