// Package docs keeps the documents correct: their commands work, their lists match the
// code, and their links have targets.
//
//	docs/api.md      every sh block is executed against a real `berth dev`
//	docs/options.md  is generated from the options of the processes (-rewrite)
//	docs/reasons.md  has exactly the reasons of the code
//	docs/operating.md, docs/concepts.md
//	                 have exactly the metrics and the kinds of findings of the code
//	deploy/grafana   uses only metrics of that list
//	docs/job-services.md
//	                 shows Go code that is part of the examples
//	every *.md       has links to existing targets
package docs

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "write docs/options.md anew")

// root of the repository. It is a symbolic link, because go test caches a result by the
// files below the module alone: with the plain path a changed document or program would be
// "(cached)".
const root = "testdata/root"

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if binary.dir != "" {
		os.RemoveAll(binary.dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n") //nolint:errcheck // the exit code reports it too
			code = 1
		}
	}
	os.Exit(code)
}

// binary is the program `berth`, built once for all tests.
var binary struct {
	once      sync.Once
	dir, path string
	err       error
}

func berth(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "berth-docs-"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "berth")
		build := exec.Command("go", "build", "-o", binary.path, "berth.dev/cmd/berth")
		if out, err := build.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			binary.err = err
		}
	})
	if binary.err != nil {
		t.Fatalf("berth cannot be built: %v", binary.err)
	}
	return binary.path
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files returns the files of the repository, with slashes in their paths, without hidden
// and built ones.
func files(t *testing.T) []string {
	t.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "bin" || strings.HasPrefix(d.Name(), ".") && name != ".":
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type().IsRegular():
			list = append(list, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 100 {
		t.Fatalf("only %d files found", len(list))
	}
	return list
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// unanchored matches the characters of a heading that GitHub removes in its anchor.
	unanchored = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of a document.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		bare := unanchored.ReplaceAllString(strings.ToLower(h[1]), "")
		list[strings.ReplaceAll(bare, " ", "-")] = true
	}
	return list
}

func TestLinks(t *testing.T) {
	links := 0
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			there := name
			if target != "" {
				there = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(there))); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, found[1])
				continue
			}
			if anchor != "" && !anchors(read(t, there))[anchor] {
				t.Errorf("%s: %s has no heading #%s", name, there, anchor)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links found", links)
	}
}

func TestDecisionsAreListed(t *testing.T) {
	index := read(t, "docs/adr/README.md")
	for _, name := range files(t) {
		base, ok := strings.CutPrefix(name, "docs/adr/")
		if !ok || base == "README.md" {
			continue
		}
		if !strings.Contains(index, "("+base+")") {
			t.Errorf("docs/adr/README.md does not list %s", base)
		}
	}
}

// A path of one machine is useless to others. The words are composed here so that this file
// does not contain them.
func TestNoPathsOfOneMachine(t *testing.T) {
	private := regexp.MustCompile(`(^|[\s"'` + "`" + `(=])(/wo` + `rk/|/tmp/w` + `t|\.\./sha` + `red)`)
	for _, name := range files(t) {
		text := read(t, name)
		if bytes.IndexByte([]byte(text), 0) >= 0 {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if private.MatchString(line) {
				t.Errorf("%s:%d names a path of one machine: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
}
