package cli

import (
	"net/http"
	"net/http/httptest"
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

// TestHintOfAWrongPath checks that a caller whose --gateway leads to another server, or below
// another path than the gateway's, is sent to this option.
func TestHintOfAWrongPath(t *testing.T) {
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.Protocols = new(http.Protocols)
	other.Config.Protocols.SetUnencryptedHTTP2(true)
	other.Start()
	defer other.Close()
	code, out, stderr := runWith(t, nil, "whoami", "--gateway", other.URL+"/berth")
	if code == 0 || out != "" || !strings.Contains(stderr, "hint: another server answers at this address") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	for method, is := range map[string]bool{"/other/berth.v1.Leaders/ListLeaders": true, "/berth.v1.New/Call": false} {
		err := fault.New(fault.Invalid, fault.ReasonUnsupported, "Berth has no method %s", method)
		if hint := hintFor(err); (hint == "the path of --gateway is not the gateway's --base-path") != is {
			t.Errorf("%s: hint %q", method, hint)
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
