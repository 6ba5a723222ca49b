package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Hunter names the checker that must find a mutant.
type Hunter string

// The hunters.
const (
	// Sim plays seeds of the simulator in a test binary with the mutant.
	Sim Hunter = "sim"
	// Chaos runs real processes with the mutant.
	Chaos Hunter = "chaos"
	// Transcripts plays the transcripts of the package that the mutant changes. It hunts
	// mutants of rules that need a rare situation, such as a host that fails every start.
	Transcripts Hunter = "transcripts"
)

// Mutant is a Berth with one broken rule.
type Mutant struct {
	Name string
	// Breaks describes the broken rule.
	Breaks string
	Edits  []Edit
	Hunter Hunter
	// In is the package whose transcripts find the mutant; empty for that of the first edit.
	In string
	// Expects lists rules of package audit or parts of messages. The hunter's message
	// must contain one of them. So a mutant that merely does not work does not count as
	// found.
	Expects []string
}

// Edit replaces the text Old in a file with New. File is a path from the root of the
// repository.
type Edit struct{ File, Old, New string }

// apply returns the text with the edit. The old text must occur exactly once.
func (e Edit) apply(text string) (string, error) {
	if n := strings.Count(text, e.Old); n != 1 {
		return "", fmt.Errorf("%s must contain this text once, contains it %d times: %s", e.File, n, e.Old)
	}
	return strings.Replace(text, e.Old, e.New, 1), nil
}

// Overlay writes a mutant's files to a directory and returns the file for go build
// -overlay. Root is the root of the repository.
func (m Mutant) Overlay(root, dir string) (string, error) {
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for _, e := range m.Edits {
		original := filepath.Join(root, e.File)
		from := original
		if done := overlay.Replace[original]; done != "" {
			from = done // an earlier edit has already changed the file
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
