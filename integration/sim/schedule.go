package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// schedule has the differences of a run from the default order of events.
type schedule struct {
	moves      []move
	deviations []deviation
}

// move is a call of a client before a step.
type move struct {
	name string
	at   int
}

// deviation is a step at which not the first event happens but another choice.
type deviation struct {
	at, choice int
}

// actOnOldView makes the registry act before it reads its view, at the first possible step from
// the given one on.
const actOnOldView = -1

// String returns the schedule in the format of parseSchedule: cancel@12 17:3.
func (s schedule) String() string {
	var words []string
	for _, m := range s.moves {
		words = append(words, fmt.Sprintf("%s@%d", m.name, m.at))
	}
	for _, d := range s.deviations {
		words = append(words, fmt.Sprintf("%d:%d", d.at, d.choice))
	}
	return strings.Join(words, " ")
}

func parseSchedule(text string) (schedule, error) {
	var s schedule
	for _, word := range strings.Fields(text) {
		if name, at, ok := strings.Cut(word, "@"); ok {
			step, err := strconv.Atoi(at)
			if err != nil {
				return s, fmt.Errorf("%q: %w", word, err)
			}
			s.moves = append(s.moves, move{name, step})
			continue
		}
		var d deviation
		if _, err := fmt.Sscanf(word, "%d:%d", &d.at, &d.choice); err != nil {
			return s, fmt.Errorf("%q: %w", word, err)
		}
		s.deviations = append(s.deviations, d)
	}
	return s, nil
}

// with returns a copy of the schedule with one more deviation.
func (s schedule) with(d deviation) schedule {
	s.deviations = append(slices.Clip(s.deviations), d)
	return s
}
