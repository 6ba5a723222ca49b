package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"berth.dev/services/assigner/dispatch"
)

// TestDeadlines checks that the documented states of a worker with a deadline are those of
// the assigner's table, with the same texts.
func TestDeadlines(t *testing.T) {
	inCode := map[string]bool{}
	for _, e := range dispatch.Edges {
		if e.Deadline == 0 {
			continue
		}
		most := strings.Replace(e.Deadline.String(), "m0s", "m", 1)
		if e.Grace {
			most += " and its grace"
		}
		inCode[fmt.Sprintf("| `%s` | the %s | %s | `%s` | %s |", e.From, e.Owner, most, e.Miss, e.Action)] = true
	}
	_, section, _ := strings.Cut(read(t, "docs/concepts.md"), "\n| worker | waits for |")
	section, _, _ = strings.Cut(section, "\n\n")
	told := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `[A-Z]+` .*$").FindAllString(section, -1) {
		told[row] = true
	}
	same(t, "docs/concepts.md", "deadline", inCode, told)
}
