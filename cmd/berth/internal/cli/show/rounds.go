package show

import (
	"fmt"
	"regexp"
	"strings"
)

// roundOf matches one round, or one move, in a message about all rounds of a reservation.
var roundOf = regexp.MustCompile(`^(round \d+|moved): (?:workers? \S+ on \S+: )?(.*)$`)

// causes returns the text before the rounds and moves in a message that lists two or more of them, the
// cause of each, and how many of them are moves.
func causes(message string) (before string, list []string, moves int) {
	for part := range strings.SplitSeq(message, "; ") {
		match := roundOf.FindStringSubmatch(part)
		switch {
		case match != nil:
			list = append(list, match[2])
			if match[1] == "moved" {
				moves++
			}
		case len(list) == 0:
			before += part + "; "
		default: // the cause of the last round has a semicolon
			list[len(list)-1] += "; " + part
		}
	}
	if len(list) < 2 {
		return "", nil, 0
	}
	if strings.HasPrefix(before, "…") { // the registry has cut a round
		before = "… "
	}
	return before, list, moves
}

// LastRound shortens a message that lists the rounds and moves of a reservation to their numbers and the
// last cause: `9 rounds, last: exited with 3`.
func LastRound(message string) string {
	before, list, moves := causes(message)
	if list == nil {
		return message
	}
	var parts []string
	if n := len(list) - moves; n > 0 {
		parts = append(parts, plural(n, "round"))
	}
	if moves > 0 {
		parts = append(parts, plural(moves, "move"))
	}
	return before + fmt.Sprintf("%s, last: %s", strings.Join(parts, " and "), list[len(list)-1])
}

// rounds shortens a message whose rounds all have the same cause. Otherwise each round matters.
func rounds(message string) string {
	_, list, _ := causes(message)
	for _, cause := range list {
		if cause != list[0] {
			return message
		}
	}
	return LastRound(message)
}
