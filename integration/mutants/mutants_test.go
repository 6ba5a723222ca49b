package mutants

import (
	"cmp"
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	hunt  = flag.Bool("hunt", false, "build every mutant and check that its hunter finds it")
	only  = flag.String("only", "", "hunt only this mutant")
	seeds = flag.Int("seeds", 20_000, "number of seeds that the simulator plays")
	from  = flag.Uint64("from", 0, "first seed of the simulator; 0 for a random seed")
	runs  = flag.Int("runs", 5, "maximum number of chaos runs, half a minute each")
)

func root(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// The edits of every mutant match the source.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All {
		if names[m.Name] {
			t.Errorf("two mutants have the name %s", m.Name)
		}
		names[m.Name] = true
		if _, err := m.Overlay(root(t), t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// An edit fails if the source does not have its old text exactly once.
func TestEditsMatchOnce(t *testing.T) {
	e := Edit{File: "f", Old: "a", New: "b"}
	if got, err := e.apply("xay"); err != nil || got != "xby" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"x", "aa"} {
		if _, err := e.apply(text); err == nil {
			t.Errorf("%q was edited", text)
		}
	}
}

// Every mutant is found, so every checker is able to fail.
func TestEveryMutantIsFound(t *testing.T) {
	if !*hunt {
		t.Skip("-hunt is not set: run make mutants")
	}
	for _, m := range All {
		if *only != "" && *only != m.Name {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			began := time.Now()
			found, out := m.hunt(t)
			if !found {
				t.Fatalf("the mutant was not found: %s\n%s", m.Breaks, tail(out, 2000))
			}
			t.Logf("found in %v: %s", time.Since(began).Round(time.Second), m.finding(out))
		})
	}
}

// hunt runs the hunter of the mutant. It reports whether the mutant was found and returns
// the output of the hunter.
func (m Mutant) hunt(t *testing.T) (bool, string) {
	t.Helper()
	dir := t.TempDir()
	overlay, err := m.Overlay(root(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Hunter == Sim {
		hunter := m.build(t, overlay, filepath.Join(dir, "sim.test"), "test", "-c", "./integration/sim")
		first := *from
		if first == 0 {
			// The first seed is random, so that a checker does not depend on particular seeds.
			first = 1 + uint64(rand.Int64N(1<<40))
		}
		t.Logf("the simulator plays %d seeds from %d", *seeds, first)
		out, failed := run(t, filepath.Join(root(t), "integration/sim"), nil, hunter, "-test.run=TestSeeds$",
			"-seeds="+strconv.Itoa(*seeds), "-from="+strconv.FormatUint(first, 10))
		return failed && m.expected(out), out
	}
	if m.Hunter == Transcripts {
		pkg := cmp.Or(m.In, filepath.Dir(m.Edits[0].File))
		hunter := m.build(t, overlay, filepath.Join(dir, "transcripts.test"), "test", "-c", "./"+pkg)
		out, failed := run(t, filepath.Join(root(t), pkg), nil, hunter, "-test.run=TestTranscripts$")
		return failed && m.expected(out), out
	}
	berth := m.build(t, overlay, filepath.Join(dir, "berth"), "build", "./cmd/berth")
	hunter := m.build(t, "", filepath.Join(dir, "chaos.test"), "test", "-c", "./integration/chaos")
	var out string
	for seed := 1; seed <= *runs; seed++ {
		var failed bool
		out, failed = run(t, filepath.Join(root(t), "integration/chaos"), []string{"BERTH_BINARY=" + berth},
			hunter, "-test.run=TestChaos$", "-test.v", "-minutes=0.4", "-seed="+strconv.Itoa(seed), "-keep="+dir)
		if failed && m.expected(out) {
			return true, out
		}
	}
	return false, out
}

func (m Mutant) expected(out string) bool {
	for _, part := range m.Expects {
		if strings.Contains(out, part) {
			return true
		}
	}
	return len(m.Expects) == 0
}

// build builds a program of the mutant. If the mutant does not build, the test fails.
func (m Mutant) build(t *testing.T, overlay, program string, args ...string) string {
	t.Helper()
	command, pkg := args[:len(args)-1], args[len(args)-1]
	// Mutants need no debug information, and linking takes most of the build time.
	all := append(append([]string{}, command...), "-ldflags=-s -w", "-o="+program)
	if overlay != "" {
		all = append(all, "-overlay="+overlay)
	}
	build := exec.Command("go", append(all, pkg)...)
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s does not build: %v\n%s", m.Name, err, out)
	}
	return program
}

// run runs a hunter. It returns the output and whether the hunter failed.
func run(t *testing.T, dir string, env []string, program string, args ...string) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

// finding returns the first line that reports the expected violation.
func (m Mutant) finding(out string) string {
	for line := range strings.Lines(out) {
		if m.expected(line) {
			line = strings.TrimSpace(line)
			return line[:min(400, len(line))]
		}
	}
	return tail(out, 400)
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
