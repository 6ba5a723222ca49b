package show

import (
	"fmt"
	"regexp"
	"strings"
)

// roundOf matches one round in a message about all rounds of a reservation.
var roundOf = regexp.MustCompile(`^round (\d+): (?:workers? \S+ on \S+: )?(.*)$`)

// causes returns the text before the rounds in a message that lists two or more of them, and the cause
// of each.
func causes(message string) (before string, list []string) {
	for part := range strings.SplitSeq(message, "; ") {
		match := roundOf.FindStringSubmatch(part)
		switch {
		case match != nil:
			list = append(list, match[2])
		case len(list) == 0:
			before += part + "; "
		default: // the cause of the last round has a semicolon
			list[len(list)-1] += "; " + part
		}
	}
	if len(list) < 2 {
		return "", nil
	}
	return before, list
}

// lastRound shortens a message that lists the rounds of a reservation to their number and the last
// cause: `9 rounds, last: exited with 3`.
func lastRound(message string) string {
	before, list := causes(message)
	if list == nil {
		return message
	}
	return before + fmt.Sprintf("%d rounds, last: %s", len(list), list[len(list)-1])
}

// rounds shortens a message whose rounds all have the same cause. Otherwise each round matters.
func rounds(message string) string {
	_, list := causes(message)
	for _, cause := range list {
		if cause != list[0] {
			return message
		}
	}
	return lastRound(message)
}
