package show

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"berth.dev/cmd/berth/internal/doctor"
)

// Checks returns one line for each check. Below a check that is not OK, it adds the
// suggested fix.
func Checks(list []doctor.Check) string {
	width := 0
	for _, c := range list {
		width = max(width, utf8.RuneCountInString(c.Name))
	}
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", c.Verdict, width, c.Name, oneLine(c.Seen))
		if c.Do != "" {
			fmt.Fprintf(&b, "      %-*s  → %s\n", width, "", c.Do)
		}
	}
	return b.String()
}

// CheckNames returns the names of checks, one line each.
func CheckNames(list []doctor.Check) string {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(c.Name + "\n")
	}
	return b.String()
}
