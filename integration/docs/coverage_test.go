package docs

import (
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

// block is a fenced block of a document.
type block struct {
	language, section, text string
	line                    int
}

// blocks returns the fenced blocks of a document, each with the heading above it.
func blocks(text string) []block {
	var list []block
	section, inside := "", false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, fence) && !inside:
			inside = true
			list = append(list, block{language: line[len(fence):], section: section, line: i + 2})
		case strings.HasPrefix(line, fence):
			inside = false
		case inside:
			list[len(list)-1].text += line + "\n"
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return list
}

// program matches a line of a block that starts one of the programs of the documents. In a
// console block, a prompt precedes it.
var program = regexp.MustCompile(`^(?:[$#] )?(?:[A-Z_]+=\S* )*(?:bin/|\./)?` +
	`(berth|berth-agent|apt|cd|curl|docker|etcdctl|go|helm|install|kubectl|make|openssl|python3|sha256sum|systemctl)(?: |$)`)

// commandBlocks returns the blocks of a document that have commands.
func commandBlocks(t *testing.T, name string) []block {
	t.Helper()
	var list []block
	for _, b := range blocks(read(t, name)) {
		commands := b.language == "sh" || b.language == "console"
		if b.language == "" || b.language == "text" {
			for _, line := range strings.Split(b.text, "\n") {
				commands = commands || program.MatchString(line)
			}
		}
		if commands {
			list = append(list, b)
		}
	}
	return list
}

// exceptions is the document that lists the commands that no test executes.
const exceptions = "integration/docs/README.md"

// exempt reads the table of exceptions. The keys are a document and a section, "all",
// or "console" for all console blocks.
func exempt(t *testing.T) map[[2]string]bool {
	t.Helper()
	list := map[[2]string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+\\.md)` \\| ([^|]+) \\| ([^|]+) \\|$").
		FindAllStringSubmatch(read(t, exceptions), -1) {
		key := [2]string{row[1], row[2]}
		if list[key] {
			t.Errorf("%s has two rows for %s, %s", exceptions, row[1], row[2])
		}
		list[key] = true
	}
	if len(list) < 10 {
		t.Fatalf("only %d exceptions found", len(list))
	}
	return list
}

// executable returns a document in which the blocks of the exceptions are no commands.
func executable(t *testing.T, name string) string {
	t.Helper()
	lines, except := strings.Split(read(t, name), "\n"), exempt(t)
	for _, b := range commandBlocks(t, name) {
		if except[[2]string{name, b.section}] {
			lines[b.line-2] = fence + "text"
		}
	}
	return strings.Join(lines, "\n")
}

// TestEveryCommandIsExecuted checks that a test executes every command of every document,
// except those in the table of exceptions. No row of the table is obsolete.
func TestEveryCommandIsExecuted(t *testing.T) {
	run := map[string]bool{}
	for _, e := range executed {
		for _, name := range append([]string{e.document}, e.then...) {
			run[name] = true
		}
	}
	except, used := exempt(t), map[[2]string]bool{}
	total := 0
	for _, name := range files(t) {
		if path.Ext(name) != ".md" || strings.HasPrefix(name, "docs/adr/") || name == exceptions {
			continue
		}
		for _, b := range commandBlocks(t, name) {
			total++
			section, all, console := [2]string{name, b.section}, [2]string{name, "all"}, [2]string{name, "console"}
			switch {
			case except[console] && b.language == "console":
				used[console] = true
			case except[section]:
				used[section] = true
			case except[all]:
				used[all] = true
			case !run[name] || b.language != "sh":
				t.Errorf("%s:%d: no test executes this block. Execute it, or add a row for the section %q to %s",
					name, b.line, b.section, exceptions)
			}
		}
	}
	if total < 70 {
		t.Errorf("only %d blocks with commands found", total)
	}
	for row := range except {
		if !used[row] {
			t.Errorf("%s: the row for %s, %s is obsolete", exceptions, row[0], row[1])
		}
	}
}

var (
	inline = regexp.MustCompile("`(berth(?:-agent)? [^`]+)`")
	// shown matches a call of berth in a line of a block, up to the next command or comment.
	shown = regexp.MustCompile(`(?:^ *|[|#$(] ?|do |-- |xargs )((?:bin/)?berth(?:-agent)? [^|&;#>)]+)`)
	flags = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)`)
)

// TestShownCommandsExist checks that every command of berth in a document exists and has the
// flags that it is shown with. This includes the commands that no test executes. TestHabits runs
// those of the habits, one of which does not exist.
func TestShownCommandsExist(t *testing.T) {
	helps := map[string]string{}
	help := func(args string) string {
		if _, known := helps[args]; !known {
			out, err := exec.Command(berth(t), append(strings.Fields(args), "--help")...).Output()
			if err != nil {
				out = nil
			}
			helps[args] = string(out)
		}
		return helps[args]
	}
	checked := 0
	check := func(name, call string) {
		words := strings.Fields(call)
		command := ""
		if path.Base(words[0]) == "berth-agent" {
			command = "agent"
		} else {
			for _, word := range words[1:] {
				longer := strings.TrimSpace(command + " " + word)
				list := help(command)
				if !regexp.MustCompile(`(?m)^  `+regexp.QuoteMeta(word)+` +\S`).MatchString(list) || !strings.Contains(list, "Available Commands:") {
					break
				}
				command = longer
			}
			if command == "" {
				if first := words[1]; regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(first) {
					t.Errorf("%s: %s: there is no such command", name, call)
				}
				return
			}
		}
		known := map[string]bool{"--help": true, "-h": true}
		for _, f := range flags.FindAllStringSubmatch(help(command), -1) {
			known["-"+f[1]], known["--"+f[2]] = true, true
		}
		for _, word := range words[1:] {
			if word == "--" { // a command of workers follows
				break
			}
			option, _, _ := strings.Cut(word, "=")
			if regexp.MustCompile(`^(?:-[a-z]|--[a-z-]+)$`).MatchString(option) && !known[option] {
				t.Errorf("%s: %s: there is no option %s", name, call, option)
			}
			checked++
		}
	}
	for _, name := range files(t) {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" ||
			name == "docs/reference/habits.md" || strings.HasPrefix(name, "docs/adr/") {
			continue
		}
		for _, b := range blocks(read(t, name)) {
			if b.language != "sh" && b.language != "console" && b.language != "" {
				continue
			}
			for _, line := range strings.Split(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
				if strings.HasPrefix(line, arrow) || b.language != "sh" && !program.MatchString(line) {
					continue
				}
				for _, call := range shown.FindAllStringSubmatch(line, -1) {
					check(name, call[1])
				}
			}
		}
		for _, call := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			check(name, call[1])
		}
	}
	if checked < 200 {
		t.Errorf("only %d words of commands checked", checked)
	}
}
