package docs

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// step is a command of a document, with the expected parts of its answer.
type step struct {
	document string
	line     int
	command  string
	expect   []expectation
}

// expectation is a part of the answer. $NAME in it stands for the value of that variable.
// If the variable has no value, it gets the text that matches.
type expectation struct {
	text   string
	within time.Duration
}

const (
	fence  = "```"
	arrow  = "# → "
	within = "within "
)

// parse returns the commands in the sh blocks of a document.
func parse(text string) ([]step, error) {
	var steps []step
	inside := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, fence):
			inside = line == fence+"sh"
		case !inside || strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, arrow):
			if len(steps) == 0 {
				return nil, fmt.Errorf("line %d: an expected answer before the first command", i+1)
			}
			e, err := parseExpectation(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			last := &steps[len(steps)-1]
			last.expect = append(last.expect, e)
		case strings.HasPrefix(line, "#"):
			return nil, fmt.Errorf("line %d: a comment must expect an answer", i+1)
		default:
			steps = append(steps, step{line: i + 1, command: line})
		}
	}
	return steps, nil
}

// parseExpectation parses a line of an answer.
func parseExpectation(line string) (expectation, error) {
	e := expectation{text: strings.TrimPrefix(line, arrow)}
	if rest, ok := strings.CutPrefix(e.text, within); ok {
		duration, text, found := strings.Cut(rest, ": ")
		var err error
		if e.within, err = time.ParseDuration(duration); err != nil || !found {
			return e, fmt.Errorf("%q is not \"within TIME: TEXT\"", e.text)
		}
		e.text = text
	}
	return e, nil
}

var assign = regexp.MustCompile(`^([A-Z]+)=(\S*)$`)

func assignment(command string) (name, value string, ok bool) {
	if a := assign.FindStringSubmatch(command); a != nil {
		return a[1], a[2], true
	}
	return "", "", false
}

var variable = regexp.MustCompile(`\$([A-Z]+)`)

// words splits a command into words as a shell does. It supports the features that
// documents use: quotes, and variables outside of single quotes.
func words(command string, vars map[string]string) ([]string, error) {
	var list []string
	var word strings.Builder
	started := false
	for len(command) > 0 {
		switch c := command[0]; c {
		case ' ':
			if started {
				list = append(list, word.String())
				word.Reset()
				started = false
			}
			command = command[1:]
		case '\'', '"':
			quoted, rest, closed := strings.Cut(command[1:], string(c))
			if !closed {
				return nil, fmt.Errorf("unclosed quote")
			}
			if c == '"' {
				var err error
				if quoted, err = expand(quoted, vars); err != nil {
					return nil, err
				}
			}
			word.WriteString(quoted)
			started = true
			command = rest
		default:
			end := strings.IndexAny(command, ` '"`)
			if end < 0 {
				end = len(command)
			}
			plain, err := expand(command[:end], vars)
			if err != nil {
				return nil, err
			}
			word.WriteString(plain)
			started = true
			command = command[end:]
		}
	}
	if started {
		list = append(list, word.String())
	}
	return list, nil
}

func expand(text string, vars map[string]string) (string, error) {
	var err error
	text = variable.ReplaceAllStringFunc(text, func(name string) string {
		value, ok := vars[name[1:]]
		if !ok {
			err = fmt.Errorf("%s has no value yet", name)
		}
		return value
	})
	return text, err
}

// curl is a command line of curl with the options that documents use.
type curl struct {
	method, url, data string
	header            http.Header
	showHead, stream  bool
}

func parseCurl(args []string) (curl, error) {
	c := curl{method: http.MethodGet, header: http.Header{}}
	for ; len(args) > 0; args = args[1:] {
		option := args[0]
		switch option {
		case "-i":
			c.showHead = true
			continue
		case "-N":
			c.stream = true
			continue
		case "-X", "-d", "-H":
			if len(args) == 1 {
				return c, fmt.Errorf("curl %s needs a value", option)
			}
			args = args[1:]
		default:
			if strings.HasPrefix(option, "-") || c.url != "" {
				return c, fmt.Errorf("this test does not support curl %s", option)
			}
			c.url = option
			continue
		}
		switch value := args[0]; option {
		case "-X":
			c.method = value
		case "-d":
			c.data = value
		case "-H":
			name, text, _ := strings.Cut(value, ":")
			c.header.Add(name, strings.TrimSpace(text))
		}
	}
	if c.url == "" {
		return c, fmt.Errorf("curl needs a URL")
	}
	return c, nil
}

// match searches an answer for the expectations in order. It returns all variables,
// including those that got a value, and the first expectation that it did not find.
func match(answer string, expect []expectation, vars map[string]string) (_ map[string]string, missing string) {
	vars = maps.Clone(vars)
	rest := collapseSpace(answer)
	for _, e := range expect {
		pattern, names := "", []string(nil)
		text := collapseSpace(e.text)
		for {
			at := variable.FindStringSubmatchIndex(text)
			if at == nil {
				break
			}
			pattern += regexp.QuoteMeta(text[:at[0]])
			name := text[at[2]:at[3]]
			if value, known := vars[name]; known {
				pattern += regexp.QuoteMeta(value)
			} else {
				pattern += `([^"]+)`
				names = append(names, name)
			}
			text = text[at[1]:]
		}
		found := regexp.MustCompile(pattern + regexp.QuoteMeta(text)).FindStringSubmatchIndex(rest)
		if found == nil {
			return nil, e.text
		}
		for i, name := range names {
			vars[name] = rest[found[2*i+2]:found[2*i+3]]
		}
		rest = rest[found[1]:]
	}
	return vars, ""
}

// collapseSpace removes the spaces outside of JSON strings, because the columns of tables
// depend on the longest values.
func collapseSpace(text string) string {
	var b strings.Builder
	inside := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && inside && i+1 < len(text):
			b.WriteByte(c)
			i++
			b.WriteByte(text[i])
		case c == '"':
			inside = !inside
			b.WriteByte(c)
		case c == ' ' && !inside:
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func TestWordsSplitLikeShell(t *testing.T) {
	vars := map[string]string{"API": "http://h", "C": "1-2"}
	for _, c := range []struct{ command, want string }{
		{`curl $API/x`, `curl|http://h/x`},
		{`curl -d '{"a": "$C"}' "$API/x?since=$C"`, `curl|-d|{"a": "$C"}|http://h/x?since=1-2`},
		{`a  b''c ""`, `a|bc|`},
	} {
		got, err := words(c.command, vars)
		if err != nil || strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q, %v", c.command, got, err)
		}
	}
	for _, bad := range []string{`curl 'x`, `curl $NOBODY`} {
		if got, err := words(bad, vars); err == nil {
			t.Errorf("%s: %q", bad, got)
		}
	}
}

// TestMatchReportsMissing checks that match reports the first expectation that the answer
// does not meet.
func TestMatchReportsMissing(t *testing.T) {
	const answer = `{"uid": "1-1", "state":"ACTIVE","message":"12 needed, 8 \"fit\" now"}`
	for _, c := range []struct {
		expect  []string
		missing string
	}{
		{[]string{`"uid":"1-1"`, `"message":"12 needed`}, ""},
		{[]string{`{"uid":"$U","state":"$S"`}, ""},
		{[]string{`"uid":"$U"`, `"state":"$U"`}, `"state":"$U"`},
		{[]string{`"state":"QUEUED"`}, `"state":"QUEUED"`},
		{[]string{`"state":"ACTIVE"`, `"uid":"1-1"`}, `"uid":"1-1"`},
		{[]string{`"message":"12needed`}, `"message":"12needed`},
	} {
		var expect []expectation
		for _, text := range c.expect {
			expect = append(expect, expectation{text: text})
		}
		if _, missing := match(answer, expect, map[string]string{}); missing != c.missing {
			t.Errorf("%q: missing %q, want %q", c.expect, missing, c.missing)
		}
	}
	vars, _ := match(answer, []expectation{{text: `"uid":"$U"`}}, map[string]string{"V": "2"})
	if vars["U"] != "1-1" || vars["V"] != "2" {
		t.Errorf("variables %v", vars)
	}
}

func TestParseReadsBlocksAndTimes(t *testing.T) {
	text := "```sh\ncurl a\n# → b\n# → within 1s: c\n```\n```console\n$ no\n```\n```sh\ncurl d\n```\n"
	steps, err := parse(text)
	if err != nil || len(steps) != 2 || steps[1].command != "curl d" || steps[0].line != 2 {
		t.Fatalf("%+v, %v", steps, err)
	}
	if e := steps[0].expect; len(e) != 2 || e[0] != (expectation{text: "b"}) || e[1] != (expectation{"c", time.Second}) {
		t.Errorf("%+v", e)
	}
	for _, bad := range []string{"```sh\n# → b\n```", "```sh\na\n# b\n```", "```sh\na\n# → within soon: b\n```"} {
		if steps, err := parse(bad); err == nil {
			t.Errorf("%q gives %+v", bad, steps)
		}
	}
}
