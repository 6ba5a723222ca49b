package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Hunter is who has to find a mutant.
type Hunter string

// The hunters.
const (
	// Sim plays the simulator's seeds, in this process's own test binary.
	Sim Hunter = "sim"
	// Chaos breaks real processes.
	Chaos Hunter = "chaos"
)

// Mutant is Berth with one rule broken.
type Mutant struct {
	Name string
	// Breaks is the rule, in words.
	Breaks string
	Edits  []Edit
	Hunter Hunter
	// Expects is what the hunter has to say, so that a mutant which merely does not
	// work is not taken for one that was found: a rule of package audit, or a part
	// of a message; any of them.
	Expects []string
}

// Edit replaces a text in a file, named from the top of the repository.
type Edit struct{ File, Old, New string }

// apply answers the file with the edit made. The text has to stand there once.
func (e Edit) apply(text string) (string, error) {
	if n := strings.Count(text, e.Old); n != 1 {
		return "", fmt.Errorf("%s has %d times, and not once: %s", e.File, n, e.Old)
	}
	return strings.Replace(text, e.Old, e.New, 1), nil
}

// Overlay writes a mutant's files into a directory, for go build -overlay: the
// answer is the file to give it. Root is the top of the repository.
func (m Mutant) Overlay(root, dir string) (string, error) {
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for _, e := range m.Edits {
		original := filepath.Join(root, e.File)
		from := original
		if done := overlay.Replace[original]; done != "" {
			from = done // a second edit of one file
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		mutated, err := e.apply(string(text))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", len(overlay.Replace), filepath.Base(e.File)))
		if from != original {
			to = from
		}
		if err := os.WriteFile(to, []byte(mutated), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[original] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}
