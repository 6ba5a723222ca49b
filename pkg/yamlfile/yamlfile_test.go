package yamlfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth.dev/pkg/yamlfile"
)

// Every mistake has the line in which it is, also where the YAML library has another line or none.
func TestMistakesHaveTheirLine(t *testing.T) {
	const invalid = "is not valid YAML: "
	for text, want := range map[string]string{
		"a: 1\n\tb: 2\n":            "f:2: " + invalid + "the line is indented with a tab; use spaces",
		"a:\n\t- 1\n":               "f:2: " + invalid + "the line is indented with a tab; use spaces",
		"a: [\n":                    "f:1: " + invalid + "did not find expected node content",
		"a: b: c\n":                 "f:1: " + invalid + "mapping values are not allowed in this context",
		"a: 1\nb: 'x\nc: 2\n":       "f:2: " + invalid + "found unexpected end of stream",
		"a: 1\n b: 2\n":             "f:2: " + invalid + "mapping values are not allowed in this context",
		"a: 1\nb: \xff\n":           "f:2: " + invalid + "the line is not UTF-8",
		"a: 1\n@x: 2\n":             "f:2: " + invalid + "found character that cannot start any token",
		"a: 1\nb: *x\n":             "f:2: " + invalid + "unknown anchor 'x' referenced",
		"a: 1\n\n\n}\n":             "f:4: " + invalid + "did not find expected key",
		"a: 1\n...\nb: 2\n":         "f:3: " + invalid + "did not find expected <document start>",
		"a: 1\n---\nb: 2\n":         "f:2: must have one YAML document: remove the line --- and what follows",
		"\n- a\n":                   "f:2: must be a mapping of options, got a list",
		"a":                         `f:1: must be a mapping of options, got "a"`,
		"~":                         "",
		"a: 1\nb: 2\na: 3\n":        "f:3: a: is set twice, the first time in line 1: remove one of them",
		"a: 1\n? [b]\n: c\n":        "f:2: has a key that is a list: must be text",
		"a: 1\n---\nb: [\n":         "f:2: must have one YAML document: remove the line --- and what follows",
		"":                          "",
		"---\n":                     "",
		"# nothing\n":               "",
		"a:\tb\n":                   "",
		"a: 1\n...\n":               "",
		"a: x\n\t\nb: 1\n":          "f:2: " + invalid + "the line is indented with a tab; use spaces",
		"a: &b 1\nc: *b\n'd': \"\"": "",
	} {
		_, problems := yamlfile.Parse("f", "options", []byte(text))
		got := ""
		for _, p := range problems {
			got += p.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// The value of a scalar is its text. YAML's numbers, booleans and dates are not converted.
func TestTextIsNotConverted(t *testing.T) {
	for text, want := range map[string]string{
		"0012": "0012", "1e3": "1e3", "2.50": "2.50", "no": "no", "True": "True", "0x10": "0x10", "1_000": "1_000",
		"2026-01-02": "2026-01-02", ".inf": ".inf", "'0012'": "0012", `"null"`: "null", "''": "", "!!str 0012": "0012",
		"!!int 12": "12", "&x y": "y", "a # comment": "a",
	} {
		if got, problem := value(t, text, "!!int"); got != want || problem != "" {
			t.Errorf("%s: %q %s", text, got, problem)
		}
	}
	for text, want := range map[string]string{
		"":             "has no value: must be a name, or remove the line",
		"~":            "has no value: must be a name, or remove the line",
		"null":         "has no value: must be a name, or remove the line",
		"{a: b}":       "must be a name, got a mapping",
		"[a]":          "must be a name, got a list",
		"!!binary YQ=": "must be a name without the tag !!binary",
		"!x y":         "must be a name without the tag !x",
		"!!float 1":    "must be a name without the tag !!float",
		"|\n  a\n  b":  "must be a name on one line",
	} {
		if got, problem := value(t, text, "!!int"); got != "" || problem != want {
			t.Errorf("%s: %q %s, want %s", text, got, problem, want)
		}
	}
}

func value(t *testing.T, text string, tags ...string) (string, string) {
	t.Helper()
	entries, problems := yamlfile.Parse("f", "options", []byte("key: "+text+"\n"))
	if len(problems) > 0 || len(entries) != 1 || entries[0].Key != "key" || entries[0].Line != 1 {
		t.Fatalf("%s: %v %v", text, entries, problems)
	}
	return yamlfile.Text(entries[0].Value, "a name", tags...)
}

func TestReadIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	for size, fails := range map[int]bool{yamlfile.MaxSize: false, yamlfile.MaxSize + 1: true} {
		if err := os.WriteFile(file, []byte(strings.Repeat("#", size)), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := yamlfile.Read(file); (err != nil) != fails {
			t.Errorf("%d bytes: %d, %v", size, len(text), err)
		}
	}
}

// Lines finds the value at a path, also below keys with dots.
func TestLineOfAPath(t *testing.T) {
	text := []byte("current: a\ncontexts:\n  a.b:\n    gateway: x\n  a: &x\n    gateway: y\ntokens:\n- role: r\n- {}\nother: *x\n")
	line := yamlfile.Lines(text)
	for path, want := range map[string]int{
		"current": 1, "contexts": 3, "contexts.a.b.gateway": 4, "contexts.a.gateway": 6, "tokens[0].role": 8,
		"tokens[1].role": 9, "tokens[2]": 8, "none": 1, "": 1, "other.gateway": 6, "contexts.a.tls-key": 5,
	} {
		if got := line(path); got != want {
			t.Errorf("%q is in line %d, want %d", path, got, want)
		}
	}
	if got := yamlfile.Lines([]byte("a"))("a"); got != 0 {
		t.Errorf("a text: line %d", got)
	}
}
