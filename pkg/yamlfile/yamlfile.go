// Package yamlfile reads YAML files that people write, without converting any value: every
// value is the text in the file, and the caller checks the text against the type that it
// needs. YAML itself would read 0012 as 10, 1e3 as 1000 and no as false.
//
// It promises that no mistake is ignored: a key that is set twice, a second document and a key
// without a value are problems. Each problem has the file, the line, the field and the accepted
// form.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the maximum size of a file, in bytes.
const MaxSize = 1 << 20

// Problem is a mistake in a file.
type Problem struct {
	File string `json:"file"`
	// Line is the line in the file, from 1; 0 for the whole file.
	Line int `json:"line,omitempty"`
	// Field is the path of the field. It is empty if the file itself is wrong.
	Field string `json:"field,omitempty"`
	// Text says what is wrong, and the accepted form.
	Text string `json:"problem"`
}

// Error returns FILE:LINE: FIELD: TEXT.
func (p Problem) Error() string {
	place := p.File
	if p.Line > 0 {
		place = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return strings.Join(slices.DeleteFunc([]string{place, p.Field, p.Text}, func(s string) bool { return s == "" }), ": ")
}

// Read returns the text of a file. It refuses files that are larger than MaxSize.
func Read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the file is only read
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(text) > MaxSize {
		err = fmt.Errorf("%s is larger than %d bytes", file, MaxSize)
	}
	return text, err
}

// Entry is a key of a mapping and its value. Value is not an alias.
type Entry struct {
	Key   string
	Line  int
	Value *yaml.Node
}

// Parse returns the entries of the mapping that is the only document of a file. A file without
// a document has no entries. what is the content of the mapping, for errors.
func Parse(file, what string, text []byte) ([]Entry, []Problem) {
	root, problems := parse(file, what, text)
	if root == nil {
		return nil, problems
	}
	return Entries(file, "", root)
}

// parse returns the mapping of a file. It is nil if the file has no document, or a problem.
func parse(file, what string, text []byte) (*yaml.Node, []Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, []Problem{invalid(file, text, err)}
	}
	root := document.Content[0]
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		line := second.Line
		if err != nil {
			line = separator(text, root.Line)
		}
		if line == 0 {
			return nil, []Problem{invalid(file, text, err)}
		}
		return nil, []Problem{{file, line, "", "must have one YAML document: remove the line --- and what follows"}}
	}
	if IsNull(root) {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, []Problem{{file, root.Line, "", "must be a mapping of " + what + ", got " + Kind(root)}}
	}
	return root, nil
}

// separator returns the first line after a line that separates documents, or 0.
func separator(text []byte, after int) int {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if i >= after && bytes.HasPrefix(line, []byte("---")) {
			return i + 1
		}
	}
	return 0
}

// Entries returns the entries of a mapping at a path of a file. An entry whose key occurs before
// is a problem, and is not among the entries.
func Entries(file, path string, mapping *yaml.Node) (entries []Entry, problems []Problem) {
	first := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			problems = append(problems, Problem{file, key.Line, path, "has a key that is " + Kind(key) + ": must be text"})
			continue
		}
		field := Join(path, key.Value)
		if line, twice := first[key.Value]; twice {
			problems = append(problems, Problem{file, key.Line, field,
				fmt.Sprintf("is set twice, the first time in line %d: remove one of them", line)})
			continue
		}
		first[key.Value] = key.Line
		entries = append(entries, Entry{key.Value, key.Line, Resolve(value)})
	}
	return entries, problems
}

// Join returns the path of a key of the mapping at a path.
func Join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// Resolve returns the node that an alias stands for. Any other node stands for itself.
func Resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// Kind describes a node for errors.
func Kind(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case IsNull(node):
		return "no value"
	}
	return strconv.Quote(node.Value)
}

// IsNull reports whether a node has no value. It is null, ~ or empty, without quotes.
func IsNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

// Text returns the text of a scalar as it is in the file. problem is not empty if the node is
// something else; it ends with the accepted form, wanted. tags has the YAML tags that the node
// may have in the file, such as !!int; !!str is always permitted.
func Text(node *yaml.Node, wanted string, tags ...string) (text, problem string) {
	switch {
	case IsNull(node):
		return "", "has no value: must be " + wanted + ", or remove the line"
	case node.Kind != yaml.ScalarNode:
		return "", "must be " + wanted + ", got " + Kind(node)
	case node.Style&yaml.TaggedStyle != 0 && !permitted(node.ShortTag(), tags):
		return "", "must be " + wanted + " without the tag " + node.Tag
	case strings.ContainsAny(node.Value, "\r\n\x00"):
		return "", "must be " + wanted + " on one line"
	}
	return node.Value, ""
}

func permitted(tag string, tags []string) bool { return tag == "!!str" || slices.Contains(tags, tag) }

var (
	// inLine matches the errors of the YAML library.
	inLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	// tabbed matches a line that is indented with a tab.
	tabbed = regexp.MustCompile(`^ *\t`)
	// unknownAnchor matches an error without a line.
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// invalid returns the problem of a text that is not YAML.
func invalid(file string, text []byte, err error) Problem {
	message := inLine.ReplaceAllString(err.Error(), "")
	at := 1 // the library omits the first line
	if found := inLine.FindStringSubmatch(err.Error()); found != nil && found[1] != "" {
		at, _ = strconv.Atoi(found[1])
		if strings.HasPrefix(message, "did not find expected ") {
			at++ // the library counts the lines of these errors from 0
		}
	}
	anchor := unknownAnchor.FindStringSubmatch(message)
	lines := bytes.Split(bytes.TrimRight(text, " \r\n"), []byte("\n"))
	for i, line := range lines {
		switch {
		case tabbed.Match(line):
			// The library reports a tab as a character that cannot start a token, and not always
			// in its line.
			return Problem{file, i + 1, "", "is not valid YAML: the line is indented with a tab; use spaces"}
		case !utf8.Valid(line):
			return Problem{file, i + 1, "", "is not valid YAML: the line is not UTF-8"}
		case anchor != nil && bytes.Contains(line, []byte("*"+anchor[1])):
			return Problem{file, i + 1, "", "is not valid YAML: " + message}
		}
	}
	return Problem{file, min(at, len(lines)), "", "is not valid YAML: " + message}
}

// Lines returns a function that returns the line of the value at a path, such as tokens[0].role, in the only
// document of a file. If the path does not exist, the line is that of the nearest value above, and 0 if the
// file is no mapping.
func Lines(text []byte) func(path string) int {
	root, _ := parse("", "", text)
	return func(path string) (line int) {
		for node := root; node != nil; {
			node = Resolve(node)
			line = node.Line
			node, path = below(node, strings.TrimPrefix(path, "."))
		}
		return line
	}
}

// below returns the value in a node to which a path leads, and the rest of the path. It returns nil if there
// is none. Keys may contain dots: the longest key counts.
func below(node *yaml.Node, path string) (value *yaml.Node, rest string) {
	if node.Kind == yaml.SequenceNode {
		number, after, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], after
		}
		return nil, ""
	}
	longest := -1
	for i := 1; i < len(node.Content); i += 2 {
		name := node.Content[i-1].Value
		after, leads := strings.CutPrefix(path, name)
		if leads && len(name) > longest && (after == "" || strings.ContainsAny(after[:1], ".[")) {
			longest, value, rest = len(name), node.Content[i], after
		}
	}
	return value, rest
}
