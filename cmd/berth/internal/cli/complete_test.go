package cli

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
)

// TestBashCompletes runs the generated script in bash, as a user's shell does when the
// user presses the tab key.
func TestBashCompletes(t *testing.T) {
	f := newFake(t)
	f.upsert(t, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 1}, "1")
	f.upsert(t, &berthv1.Reservation{Job: "train", Stage: "eval", Count: 1}, "2")
	f.do(t, []string{"executors", "ex-1", "ex-2"})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "berth")); err != nil {
		t.Fatal(err)
	}
	// The package bash-completion, which shells load before the script, defines this
	// function. It may be missing on this host.
	const words = `
_get_comp_words_by_ref() {
	cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
}
source <(berth completion bash) || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
__start_berth
printf '%s\n' "${COMPREPLY[@]}"`
	for _, c := range []struct {
		line []string
		want string
	}{
		{[]string{"expl"}, "explain"},
		{[]string{"cancel", "t"}, "train"},
		{[]string{"cancel", "train/"}, "train/eval train/gpu"},
		{[]string{"describe", "train/g"}, "train/gpu"},
		{[]string{"drain", "ex-1", ""}, "ex-2"},
		{[]string{"get", "leaders", "-o", "j"}, "json"},
		{[]string{"get", "reservations", "--state", "EX"}, "EXPIRED"},
		{[]string{"resign", "a"}, "assigner"},
		{[]string{"cancel", "--gateway", "nowhere", ""}, ""},
	} {
		args := append([]string{"--norc", "-c", words, "bash", "berth"}, c.line...)
		cmd := exec.CommandContext(t.Context(), "bash", args...)
		cmd.Env = append(os.Environ(), asBerth+"=1", "BERTH_CONTEXTS="+filepath.Join(dir, "none"), "BERTH_GATEWAY="+f.address,
			"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.Output()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != c.want {
			t.Errorf("berth %q completes to %q, want %q (%v)", c.line, got, c.want, err)
		}
	}
}

// TestScriptsForShells checks that every shell has a script.
func TestScriptsForShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var out, stderr bytes.Buffer
		if code := Run(t.Context(), New(Streams{Out: &out, Err: &stderr, Env: gatewayAt("")}),
			[]string{"completion", shell}); code != 0 || !strings.Contains(out.String(), "__complete") {
			t.Errorf("%s: exit %d, %d bytes: %s", shell, code, out.Len(), &stderr)
		}
	}
}

// completed returns the lines of a completion without its directive.
func completed(t *testing.T, args ...string) []string {
	var out, stderr bytes.Buffer
	root := New(Streams{Out: &out, Err: &stderr, Env: gatewayAt("")})
	if code := Run(t.Context(), root, append([]string{"__complete"}, args...)); code != 0 {
		t.Errorf("%q: exit %d: %s", args, code, &stderr)
	}
	lines := strings.Fields(out.String())
	return lines[:len(lines)-1]
}

func TestCompletionIsBounded(t *testing.T) {
	f := newFake(t)
	for i := range 2 * completionValues {
		f.do(t, []string{"executors", fmt.Sprintf("ex-%d", i)})
	}
	if got := completed(t, "drain", "--gateway", f.address, ""); len(got) != completionValues {
		t.Errorf("%d values", len(got))
	}
}

// TestCompletionWithoutAnAnswer checks that a completion ends if a gateway accepts the
// connection and never answers.
func TestCompletionWithoutAnAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if got := completed(t, "drain", "--gateway", silent.Addr().String(), ""); len(got) != 0 {
		t.Errorf("completed %q", got)
	}
}

// TestCompletionIgnoresNamesThatAShellEvaluates checks that a wrong answer of a gateway
// does not reach the shell.
func TestCompletionIgnoresNamesThatAShellEvaluates(t *testing.T) {
	f := newFake(t)
	f.do(t, []string{"executors", "$(reboot)", "ex-1", "a;b", "../x"})
	if got := completed(t, "drain", "--gateway", f.address, ""); len(got) != 1 || got[0] != "ex-1" {
		t.Errorf("completed %q", got)
	}
}
