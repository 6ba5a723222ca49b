package cli

import (
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
)

// TestHintOfAServiceWithoutLeader checks that a caller is not sent to another gateway if the
// gateway has answered.
func TestHintOfAServiceWithoutLeader(t *testing.T) {
	for cause, want := range map[string]string{
		"registry has no leader": "berth get leaders", "connection refused": "--gateway HOST:PORT",
	} {
		err := fault.New(fault.Unavailable, fault.ReasonUnavailable, "no definite answer").With("gateways", "a:1").
			Because(fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s", cause))
		if hint := hintFor(err); !strings.Contains(hint, want) {
			t.Errorf("%s: hint %q, want %q", cause, hint, want)
		}
	}
}

// Every suggestion is a command that exists, and no word of another tool is a command or
// an alias of the same parent.
func TestSuggestionsExist(t *testing.T) {
	root := newRoot(&app{Streams: Streams{Env: func(string) string { return "" }, Now: time.Now}})
	for path, words := range habits {
		cmd, _, err := root.Find(strings.Fields(path)[1:])
		if err != nil || cmd.CommandPath() != path {
			t.Errorf("%s is not a command", path)
			continue
		}
		for _, sibling := range cmd.Parent().Commands() {
			for _, word := range words {
				if sibling.Name() == word || sibling.HasAlias(word) {
					t.Errorf("%s: %s is a command", path, word)
				}
			}
		}
	}
	for word := range absent {
		if has(root, word) {
			t.Errorf("%s is a command", word)
		}
	}
}
