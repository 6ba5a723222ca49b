package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/root"
)

// TestEveryCommandThatWaitsHasATimeout checks that every command that waits for a gateway
// or etcd has a --timeout. The other commands run until they are stopped, or call only
// processes that they have started.
func TestEveryCommandThatWaitsHasATimeout(t *testing.T) {
	without := map[string]bool{
		"berth dev": true, "berth demo": true, "berth registry": true, "berth executor-state": true, "berth assigner": true,
		"berth gateway": true, "berth agent": true, "berth cell": true, "berth sim": true, "berth etcd": true,
		"berth bench failover": true, "berth bench docs": true, "berth version": true, "berth certs init": true,
		"berth certs issue": true, "berth config": true, "berth config use": true, "berth config set": true,
		"berth config list": true, "berth config current-context": true,
		"berth config delete": true, "berth": true,
	}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		path := cmd.CommandPath()
		if !cmd.Runnable() || without[path] {
			delete(without, path)
			return
		}
		flag := cmd.Flag("timeout")
		if flag == nil {
			t.Errorf("%s has no --timeout", path)
		} else if d, err := time.ParseDuration(flag.DefValue); err != nil || d <= 0 {
			t.Errorf("%s waits %s by default", path, flag.DefValue)
		}
	}
	look(root.New(cli.Streams{Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }, Now: time.Now}))
	for path := range without {
		t.Errorf("unknown command %s", path)
	}
}

// TestEveryCommandHasAnOutputFormat checks that every command has -o, except those that
// print nothing that a script reads.
func TestEveryCommandHasAnOutputFormat(t *testing.T) {
	const (
		runs   = "runs until it is stopped, and prints logs"
		stored = "changes a file of contexts, and prints one sentence"
		report = "writes a report"
	)
	without := map[string]string{
		"berth agent": runs, "berth assigner": runs, "berth cell": runs, "berth demo": runs, "berth dev": runs,
		"berth etcd":           runs,
		"berth executor-state": runs, "berth gateway": runs, "berth registry": runs, "berth sim": runs,
		"berth config set": stored, "berth config use": stored, "berth config delete": stored,
		"berth config current-context": "prints one name",
		"berth bench":                  report + " with --json", "berth bench failover": report + " with --json",
		"berth replay": report + " with --report", "berth bench docs": report + " in Markdown",
		"berth": "prints its help", "berth config": "prints its usage",
		"berth volumes": "prints its usage",
	}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		path, flag := cmd.CommandPath(), cmd.Flag("output")
		reason, known := without[path]
		delete(without, path)
		switch {
		case cmd.Runnable() && flag == nil && !known:
			t.Errorf("%s has no --output", path)
		case known && flag != nil:
			t.Errorf("%s has --output, although it %s", path, reason)
		case strings.HasPrefix(reason, report+" with") && cmd.Flag(reason[strings.Index(reason, "--")+2:]) == nil:
			t.Errorf("%s has no flag for its report: it %s", path, reason)
		case flag != nil && flag.Shorthand != "o":
			t.Errorf("%s has --output without -o", path)
		}
	}
	look(root.New(cli.Streams{Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }, Now: time.Now}))
	for path := range without {
		t.Errorf("unknown command %s", path)
	}
}

// TestEveryCommandHasAnExample checks that the help of every command has an example, and
// that the program accepts the command line of each example.
func TestEveryCommandHasAnExample(t *testing.T) {
	streams := cli.Streams{Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }, Now: time.Now}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		own := false
		for line := range strings.SplitSeq(strings.ReplaceAll(cmd.Example, "\\\n", ""), "\n") {
			if line == "" {
				continue
			}
			found, args := parseExample(t, root.New(streams), line)
			own = own || strings.HasPrefix(found.CommandPath(), cmd.CommandPath()) // a subcommand is an example too
			if err := found.ParseFlags(args); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			}
		}
		if cmd.Runnable() && !own {
			t.Errorf("%s has no example of itself", cmd.CommandPath())
		}
	}
	look(root.New(streams))
}

// parseExample returns the command of an example and its arguments. It reads the last
// command of a pipe that is berth, without comments and quotes.
func parseExample(t *testing.T, root *cobra.Command, line string) (*cobra.Command, []string) {
	line, _, _ = strings.Cut(line, "  #")
	if !strings.HasPrefix(line, "  ") {
		t.Errorf("example %q is not indented by two spaces", line)
	}
	var words []string
	for part := range strings.SplitSeq(line, " | ") {
		if fields := strings.Fields(part); fields[0] == "berth" {
			words = fields[1:]
		}
	}
	// A quoted text is one word.
	for i := 0; i < len(words); i++ {
		for strings.Count(words[i], "'") == 1 && i+1 < len(words) {
			words[i] += " " + words[i+1]
			words = slices.Delete(words, i+1, i+2)
		}
	}
	found, args, err := root.Find(words)
	if err != nil || words == nil {
		t.Fatalf("example %q: %v", line, err)
	}
	return found, args
}
