package docs

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// processes lists the processes whose options the document has, in this order.
var processes = []struct{ name, is string }{
	{"registry", "One replica of the registry."},
	{"executor-state", "One replica of executor-state."},
	{"assigner", "One replica of the assigner."},
	{"gateway", "A gateway."},
	{"agent", "The agent of a host. The program `berth-agent` has the same options."},
	{"cell", "The agent of a cluster that is a cell of another one."},
	{"dev", "Everything in one process, with embedded etcd."},
	{"sim", "Many simulated executors in one process."},
}

const optionsHead = `# Options of every process

` + "`go test ./integration/docs -rewrite`" + ` generates this page from the code; do not edit it. You can set an option as a flag, in the environment, and in the YAML file that ` + "`--config`" + ` names; the first of these wins. The key in the file is the flag without its dashes. Separate the items of a list with commas. [Configuration](processes.md#configuration) describes the forms of values.
`

// option matches one line of a command's help: flag, type, usage, variable and default.
var option = regexp.MustCompile(`^ +(?:-\w, )?--([a-z-]+)(?: (\w+))? {2,}(.*?)(?: \[(BERTH_\w+)\])?(?: \(default (.*)\))?$`)

// options returns the options of a process as a table. The table is generated from the help
// of the program, so the reference and the help are the same.
func options(t *testing.T, process string) string {
	t.Helper()
	help, err := exec.Command(berth(t), process, "--help").Output()
	if err != nil {
		t.Fatalf("berth %s --help: %v", process, err)
	}
	_, flags, found := strings.Cut(string(help), "Flags:\n")
	if !found {
		t.Fatalf("berth %s --help has no flags:\n%s", process, help)
	}
	var table strings.Builder
	table.WriteString("| flag | variable | default | |\n|---|---|---|---|\n")
	for _, line := range strings.Split(strings.TrimRight(flags, "\n"), "\n") {
		o := option.FindStringSubmatch(line)
		if o == nil {
			t.Fatalf("berth %s --help: cannot read %q", process, line)
		}
		name, kind, usage, variable, standard := o[1], o[2], o[3], o[4], strings.Trim(o[5], `"[]`)
		if name == "help" {
			continue
		}
		switch kind {
		case "":
			kind = "bool"
		case "strings":
			kind = "list"
		}
		if variable == "" {
			t.Errorf("berth %s: --%s has no variable", process, name)
		}
		fmt.Fprintf(&table, "| `--%s` %s | `%s` | %s | %s |\n", name, kind, variable, code(standard), usage)
	}
	return table.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func TestOptionsMatchCode(t *testing.T) {
	var b strings.Builder
	b.WriteString(optionsHead)
	for _, p := range processes {
		fmt.Fprintf(&b, "\n## berth %s\n\n%s\n\n%s", p.name, p.is, options(t, p.name))
	}
	generated(t, "docs/reference/options.md", b.String())
}
