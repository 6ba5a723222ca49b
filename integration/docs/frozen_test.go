package docs

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var freeze = flag.Bool("freeze", false, "add the names of this version to testdata/frozen/names.txt")

// frozen has the names that users rely on and that no .proto file has, one a line. `make
// compatible` compares the .proto files with an image in the same folder.
const frozen = "testdata/frozen/names.txt"

const frozenHead = "# The names of Berth %s. All of them stay. `make freeze` adds those of a new version.\n"

// TestFrozenNames checks that every name of the newest release still exists. In a release,
// all names are frozen.
func TestFrozenNames(t *testing.T) {
	version := strings.TrimSpace(read(t, "VERSION"))
	text, err := os.ReadFile(frozen)
	if err != nil && !(*freeze && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	head, lines, _ := strings.Cut(string(text), "\n")
	kept := map[string]bool{}
	for line := range strings.Lines(lines) {
		kept[strings.TrimSpace(line)] = true
	}
	now := stableNames(t)
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if !now[name] {
			t.Errorf("%s has %q, which no longer exists: names are only added, never renamed or removed", frozen, name)
		}
	}
	switch list := slices.Sorted(maps.Keys(now)); {
	case t.Failed():
	case *freeze:
		text := fmt.Sprintf(frozenHead, version) + strings.Join(list, "\n") + "\n"
		if err := os.MkdirAll(filepath.Dir(frozen), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(frozen, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	case !strings.Contains(version, "-"):
		if head+"\n" != fmt.Sprintf(frozenHead, version) {
			t.Errorf("%s is not of version %s: run make freeze", frozen, version)
		}
		for _, name := range list {
			if !kept[name] {
				t.Errorf("%q is not in %s: run make freeze", name, frozen)
			}
		}
	}
}

// stableNames returns the names that a later version must keep. Other tests check that the
// documents and the code have the same names.
func stableNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	add := func(format string, values ...any) { names[fmt.Sprintf(format, values...)] = true }
	for reason := range codeReasons(t) {
		add("reason %s", reason)
	}
	for kind := range codeFindings(t) {
		add("finding %s", kind)
	}
	for metric, labels := range listedMetrics(t) {
		add("metric %s", metric)
		for _, label := range labels {
			add("metric %s %s", metric, label)
		}
	}
	for where, item := range document(t).Paths.Map() {
		for method, operation := range item.Operations() {
			add("rest %s %s", method, where)
			for _, p := range operation.Parameters {
				add("rest %s %s %s %s", method, where, p.Value.In, p.Value.Name)
			}
		}
	}
	for _, name := range files(t) {
		if strings.HasPrefix(name, "docs/reference/") {
			for _, variable := range regexp.MustCompile(`\bBERTH_[A-Z_]*[A-Z]\b`).FindAllString(read(t, name), -1) {
				add("variable %s", variable)
			}
		}
	}
	code := regexp.MustCompile(`(?m)^\| ([0-9]+) \| `)
	for _, row := range code.FindAllStringSubmatch(read(t, "docs/reference/cli.md"), -1) {
		add("exit code %s", row[1])
	}
	value := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ")
	for _, row := range value.FindAllStringSubmatch(read(t, "docs/reference/chart.md"), -1) {
		add("chart value %s", row[1])
	}
	addCommands(t, add)
	if len(names) < 1000 {
		t.Fatalf("only %d names found", len(names))
	}
	return names
}

// addCommands adds the command and all commands below it, with their flags, from their help.
func addCommands(t *testing.T, add func(format string, values ...any), command ...string) {
	t.Helper()
	help, err := exec.Command(berth(t), append(command, "--help")...).Output()
	if err != nil {
		t.Fatalf("berth %v --help: %v", command, err)
	}
	title := strings.Join(append([]string{"berth"}, command...), " ")
	add("command %s", title)
	section := ""
	for lines := bufio.NewScanner(strings.NewReader(string(help))); lines.Scan(); {
		line := lines.Text()
		flag := regexp.MustCompile(`^ +(?:(-\w), )?(--[a-z-]+)`).FindStringSubmatch(line)
		switch {
		case strings.HasSuffix(line, ":") && !strings.HasPrefix(line, " "):
			section = line
		case strings.HasSuffix(section, "Flags:") && flag != nil:
			add("flag %s %s", title, flag[2])
			if flag[1] != "" {
				add("flag %s %s", title, flag[1])
			}
		case section == "Available Commands:" && strings.HasPrefix(line, "  "):
			addCommands(t, add, append(slices.Clone(command), strings.Fields(line)[0])...)
		}
	}
}
