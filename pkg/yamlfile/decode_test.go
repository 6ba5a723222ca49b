package yamlfile_test

import (
	"reflect"
	"strings"
	"testing"

	"berth.dev/pkg/yamlfile"
)

type owner struct {
	Name  string   `yaml:"name"`
	Count int      `yaml:"count"`
	Rate  float64  `yaml:"rate"`
	On    bool     `yaml:"on"`
	Tags  []string `yaml:"tags"`
}

type document struct {
	Owners []owner `yaml:"owners"`
	Main   owner   `yaml:"main"`
}

func TestDecodeConvertsNothing(t *testing.T) {
	for text, want := range map[string]string{
		"main: {count: 2.5}":                   `f:1: main.count: must be a whole number, got "2.5"`,
		"main: {count: 1e3}":                   `f:1: main.count: must be a whole number, got "1e3"`,
		"main: {count: 0012}":                  `f:1: main.count: must be a whole number, got "0012"`,
		"main: {count: true}":                  `f:1: main.count: must be a whole number, got "true"`,
		"main: {count: }":                      `f:1: main.count: has no value: must be a whole number, or remove the line`,
		"main: {rate: .inf}":                   `f:1: main.rate: must be a number, got ".inf"`,
		"main: {on: 1}":                        `f:1: main.on: must be true or false, got "1"`,
		"main: {name: ~}":                      `f:1: main.name: has no value: must be text, or remove the line`,
		"main: {name: [a]}":                    `f:1: main.name: must be text, got a list`,
		"main: {tags: a}":                      `f:1: main.tags: must be a list such as [a, b], got "a"`,
		"main: {tags: {a: b}}":                 `f:1: main.tags: must be a list such as [a, b], got a mapping`,
		"main: a":                              `f:1: main: must be a mapping, got "a"`,
		"main:\n  Name: a":                     `f:2: main.Name: unknown key; must be one of name, count, rate, on, tags`,
		"owners:\n- name: a\n- nam: b":         `f:3: owners[1].nam: unknown key; must be one of name, count, rate, on, tags`,
		"main: {name: a, name: b}":             `f:1: main.name: is set twice, the first time in line 1: remove one of them`,
		"owners: [a]":                          `f:1: owners[0]: must be a mapping, got "a"`,
		"main: {<<: [a]}":                      `f:1: main: << must be a mapping, got "a"`,
		`main: {name: "a\nb"}`:                 `f:1: main.name: must be text on one line`,
		`main: {name: "-----BEGIN \0"}`:        `f:1: main.name: must be text on one line`,
		"main: {name: !!binary '-----BEGIN '}": `f:1: main.name: must be text without the tag !!binary`,
		"main: &m {<<: *m}":                    `f:1: main: << is nested too deep`,
		"main: &m {<<: &n {<<: *m}}":           `f:1: main: << is nested too deep`,
	} {
		var d document
		isEmpty, problems := yamlfile.Decode("f", "fields", []byte(text), &d)
		if isEmpty || len(problems) != 1 || problems[0].Error() != want {
			t.Errorf("%q: %v, want %s", text, problems, want)
		}
	}
}

func TestDecode(t *testing.T) {
	const text = `
owners:
- &o {name: 0012, count: 1_000, rate: 2, on: True, tags: [1e3, no]}
- {<<: *o, name: b, tags: }
- *o
main: {<<: [*o, {count: 7}], rate: .5}
`
	all := owner{"0012", 1000, 2, true, []string{"1e3", "no"}}
	second, main := all, all
	second.Name, second.Tags, main.Rate = "b", nil, .5
	var d document
	pem := `main: {name: "-----BEGIN X-----\nY\n"}` // the only text of several lines
	if _, problems := yamlfile.Decode("f", "fields", []byte(pem), &d); len(problems) > 0 ||
		d.Main.Name != "-----BEGIN X-----\nY\n" {
		t.Errorf("%+v, %v", d, problems)
	}
	d = document{}
	if isEmpty, problems := yamlfile.Decode("f", "fields", []byte(text), &d); isEmpty || len(problems) > 0 ||
		!reflect.DeepEqual(d, document{[]owner{all, second, all}, main}) {
		t.Errorf("%+v, %v", d, problems)
	}
	for text, want := range map[string]bool{"": true, "---\n": true, "# no\n": true, "{}": false, "owners:": false} {
		if isEmpty, problems := yamlfile.Decode("f", "fields", []byte(text), &d); isEmpty != want || len(problems) > 0 {
			t.Errorf("%q: %v, %v", text, isEmpty, problems)
		}
	}
}

// Aliases of aliases do not take the time or the memory of the values that they stand for.
func TestDecodeIsBounded(t *testing.T) {
	text := "owners:\n- &o {tags: [" + strings.Repeat("a, ", 10_000) + "]}\n" + strings.Repeat("- *o\n", 10_000)
	var d document
	if _, problems := yamlfile.Decode("f", "fields", []byte(text), &d); len(problems) != 1 ||
		!strings.Contains(problems[0].Text, "more than 1000000 values") {
		t.Errorf("%v", problems)
	}
}
