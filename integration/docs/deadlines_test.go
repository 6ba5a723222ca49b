package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"berth.dev/services/assigner/dispatch"
)

// TestDeadlinesMatchTable checks that the document lists exactly the deadlines of the
// assigner's table.
func TestDeadlinesMatchTable(t *testing.T) {
	inCode := map[string]bool{}
	for _, e := range dispatch.Edges {
		if e.Deadline == 0 {
			continue
		}
		most := strings.Replace(e.Deadline.String(), "m0s", "m", 1)
		if e.Grace {
			most += " and its grace"
		}
		if e.StartLimit {
			most += ", or its `startTimeout` and its grace if that is longer"
		}
		inCode[fmt.Sprintf("| `%s` | the %s | %s | `%s` | %s |", e.From, e.Owner, most, e.Miss, e.Action)] = true
	}
	_, section, _ := strings.Cut(read(t, "docs/reference/states.md"), "\n| worker | waits for |")
	section, _, _ = strings.Cut(section, "\n\n")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `[A-Z]+` .*$").FindAllString(section, -1) {
		listed[row] = true
	}
	compareLists(t, "docs/reference/states.md", "deadline", inCode, listed)
}
