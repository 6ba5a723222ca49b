package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// general are the limits of packages that the file of limits does not list.
var general = limit{lines: 3700, methods: 110, pairs: 3}

// lineStep is the unit of limits of lines, so that a small repair does not exceed one.
const lineStep = 100

// limit is the maximum of a package.
type limit struct{ lines, methods, pairs int }

func show(rooms []room) {
	fmt.Printf("%-44s %6s %8s %6s\n", "PACKAGE", "LINES", "METHODS", "PAIRS")
	for _, r := range rooms {
		fmt.Printf("%-44s %6d %8d %6d\n", r.dir, r.lines, r.methods, len(r.pairs))
		for _, pair := range r.pairs {
			fmt.Printf("  %s and %s\n", pair[0], pair[1])
		}
	}
}

// compare returns an error for each package that exceeds its limits in a file. With lower, it lowers the limits
// in the file to what the packages have, and no limit rises.
func compare(rooms []room, file string, lower bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	limits, err := parseLimits(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var errs []error
	next, listed := header, 0
	for _, r := range rooms {
		has := limit{r.lines, r.methods, len(r.pairs)}
		most, known := limits[r.dir]
		if !known {
			most = general
		} else {
			listed++
		}
		for _, err := range has.beyond(most) {
			errs = append(errs, fmt.Errorf("%s: %w", r.dir, err))
		}
		if kept := has.rounded().lowered(most); known && kept != general {
			next += fmt.Sprintf("%-44s %6d %8d %6d\n", r.dir, kept.lines, kept.methods, kept.pairs)
		}
	}
	if listed < len(limits) && !lower {
		errs = append(errs, fmt.Errorf("%s lists packages that do not exist: run make rooms-lower", file))
	}
	if err := errors.Join(errs...); err != nil || !lower {
		return err
	}
	return os.WriteFile(file, []byte(next), 0o644)
}

// header is the head of the file of limits.
const header = "# The limits of packages that exceed the general limits of tools/rooms. They may only fall.\n" +
	"# package, lines, methods of the largest type, pairs of files that call each other\n"

func parseLimits(text string) (map[string]limit, error) {
	limits := map[string]limit{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var dir string
		var l limit
		if n, err := fmt.Sscan(line, &dir, &l.lines, &l.methods, &l.pairs); n < 4 {
			return nil, fmt.Errorf("line %d: must be a package and three numbers: %v", i+1, err)
		}
		if _, twice := limits[dir]; twice {
			return nil, fmt.Errorf("line %d: %s is listed twice", i+1, dir)
		}
		limits[dir] = l
	}
	return limits, nil
}

// rounded returns limits with the lines rounded up.
func (l limit) rounded() limit {
	l.lines = (l.lines + lineStep - 1) / lineStep * lineStep
	return l
}

// lowered returns the limits of a package that keeps l, and had most before. No limit is below the general one.
func (l limit) lowered(most limit) limit {
	return limit{max(general.lines, min(l.lines, most.lines)), max(general.methods, min(l.methods, most.methods)),
		max(general.pairs, min(l.pairs, most.pairs))}
}

// beyond returns an error for each number that exceeds a limit.
func (l limit) beyond(most limit) []error {
	var errs []error
	for _, one := range []struct {
		have, most int
		of         string
	}{
		{l.lines, most.lines, "lines"}, {l.methods, most.methods, "methods of one type"},
		{l.pairs, most.pairs, "pairs of files that call each other"},
	} {
		if one.have > one.most {
			errs = append(errs, fmt.Errorf("%d %s, and at most %d are allowed", one.have, one.of, one.most))
		}
	}
	return errs
}
