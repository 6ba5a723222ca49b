package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// TestHintOfAServiceWithoutLeader checks that a caller is not sent to another gateway if the
// gateway has answered.
func TestHintOfAServiceWithoutLeader(t *testing.T) {
	for cause, want := range map[string]string{
		"registry has no leader": "berth get leaders",
		"no replica of registry answers: a:7199 (connection refused)": "berth get leaders", "connection refused": "--gateway HOST:PORT",
	} {
		err := fault.New(fault.Unavailable, fault.ReasonUnavailable, "no definite answer").With("gateways", "a:1").
			Because(fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s", cause))
		if hint := hintFor(err); !strings.Contains(hint, want) {
			t.Errorf("%s: hint %q, want %q", cause, hint, want)
		}
	}
}

// TestDialled checks that network errors are a few words, and name the gateway if there are several.
func TestDialled(t *testing.T) {
	const failed = `connection error: desc = "transport: Error while dialing: dial tcp`
	for message, want := range map[string][2]string{
		failed + ` a:1: connect: connection refused"`:       {"connection refused", "a:1: connection refused"},
		failed + `: lookup a on 10.0.0.1:53: no such host"`: {"no such host", "a: no such host"},
		failed + `: lookup a: no such host"`:                {"no such host", "a: no such host"},
		failed + `: lookup a: server misbehaving"`: {"the name cannot be resolved",
			"a: the name cannot be resolved"},
		`connection error: desc = "error reading server preface: http2: frame too large"`: {
			"it speaks another protocol, such as TLS or plain HTTP", "it speaks another protocol, such as TLS or plain HTTP"},
		"registry has no leader": {"registry has no leader", "registry has no leader"},
	} {
		if got := [2]string{dialled("a:1", message), dialled("a:1, b:1", message)}; got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
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

// TestSuggestionsExist checks that every suggestion is a command that exists, and that no word of
// another tool is a command.
func TestSuggestionsExist(t *testing.T) {
	root := newRoot(&app{Streams: Streams{Env: func(string) string { return "" }, Now: time.Now}})
	for line, words := range habits {
		if cmd := find(root, line); cmd == root || !strings.HasPrefix(line, cmd.CommandPath()) {
			t.Errorf("%s is not a command", line)
		}
		for _, word := range words {
			if child(root, word) != nil {
				t.Errorf("%s: %s is a command", line, word)
			}
		}
	}
	for word := range absent {
		if child(root, word) != nil {
			t.Errorf("%s is a command", word)
		}
	}
	for _, path := range reading {
		if find(root, "berth "+path) == root && path != "help" {
			t.Errorf("%s is not a command", path)
		}
	}
}

// TestSimilarLettersOnlyRead checks that no typo leads to a command that changes something: not one
// letter of any command may be the only difference.
func TestSimilarLettersOnlyRead(t *testing.T) {
	root := newRoot(&app{Streams: Streams{Env: func(string) string { return "" }, Now: time.Now}})
	for _, cmd := range root.Commands() {
		for i := range cmd.Name() {
			typo := cmd.Name()[:i] + "q" + cmd.Name()[i+1:]
			for _, line := range misspelled(root, []string{typo}) {
				if similar := find(root, line); !reads(similar) {
					t.Errorf("berth %s: suggests %s", typo, line)
				}
			}
		}
	}
	for word, want := range map[string]string{"restart": noRestart, "resize": "berth apply -f FILE",
		"jobs": "berth get jobs", "hold": noPause, "cancle": "", "drian": "", "resing": "", "evnets": "berth events x"} {
		hint := suggestion(root, []string{word, "x"})
		if !strings.Contains(hint, want) || want == "" && hint != "" || strings.Contains(hint, "resign") {
			t.Errorf("berth %s x: hint %q, want %q", word, hint, want)
		}
	}
}

// TestWordsOfOtherTools checks the command lines that the words of other tools lead to.
func TestWordsOfOtherTools(t *testing.T) {
	root := newRoot(&app{Streams: Streams{Env: func(string) string { return "" }, Now: time.Now}})
	for line, want := range map[string]string{
		"cordon node x":                 "'berth disable x'",
		"cordon x y":                    "'berth disable x y'",
		"taint nodes x k=v:NoSchedule":  "'berth disable x'",
		"taint nodes x k=v:NoSchedule-": "'berth enable x'",
		"uncordon no/x":                 "'berth enable x'",
		"undrain x":                     "'berth enable x'",
		"resume node x":                 "'berth enable x'",
		"node drain x":                  "'berth drain x'",
		"delete job/x":                  "'berth cancel x'",
		"delete job x":                  "'berth cancel x'",
		"delete x/y":                    "'berth cancel x/y'",
		"delete node x":                 "",
		"delete pod x":                  "",
		"delete sku/x":                  "",
		"create node x":                 "",
		"create job x":                  "'berth apply -f FILE'",
		"cordon pool x":                 "",
		"scontrol update NodeName=x,y State=DRAIN": "'berth disable x y'",
		"scontrol update nodename=x state=resume":  "'berth enable x'",
		"scontrol update JobId=7 Priority=1":       "'berth apply -f FILE'",
		"scontrol show job x":                      "'berth describe job x'",
		"scontrol show node x":                     "'berth describe executor x'",
		"scontrol show nodes":                      "'berth get executors'",
		"scontrol release x":                       noPause,
		"scontrol frob":                            "'berth describe frob'",
		"qsub f":                                   "'berth apply -f FILE'",
		"bsub f":                                   "'berth apply -f FILE'",
		"qstat":                                    "'berth get reservations'",
		"bjobs":                                    "'berth get reservations'",
		"qdel x":                                   "'berth cancel x'",
		"bkill x":                                  "'berth cancel x'",
		"label node x k=v":                         noLabel,
		"validate f":                               "'berth apply -f FILE --dry-run'",
		"release x":                                noPause,
		"rollout status job/x":                     "'berth wait x'",
		"stats x":                                  "'berth top'",
		"why job x":                                "'berth explain x'",
		"why node x":                               "'berth explain'",
		"list nodes":                               "'berth get executors'",
		"show pod x":                               "'berth describe x'",
	} {
		hint := suggestion(root, strings.Fields(line))
		if !strings.Contains(hint, want) || want == "" && hint != "" || strings.Contains(hint, " or ") {
			t.Errorf("berth %s: hint %q, want %q", line, hint, want)
		}
	}
}

// TestUnknownExecutorIsComparedOnce checks that an error about an unknown executor lists the executors once.
func TestUnknownExecutorIsComparedOnce(t *testing.T) {
	f := newFake(t)
	f.do(t, []string{"executors", "ex-1"})
	for line, want := range map[string]string{"enable ex-9": "did you mean ex-1?",
		"enable other": "there is no executor other", "drain other": "there is no executor other",
		"get executors other": "there is no executor other"} {
		f.listed = 0
		var out, stderr bytes.Buffer
		code := run(t, f, strings.Fields(line), bytes.NewReader(nil), &out, &stderr)
		if code != rpc.ExitNotFound || !strings.Contains(stderr.String(), want) || f.listed != 1 {
			t.Errorf("berth %s: exit %d, %d lists: %s", line, code, f.listed, &stderr)
		}
	}
}
