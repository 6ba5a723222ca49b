// Package docs guarantees that the documents match the code: it executes their commands,
// compares their lists with the code, and checks their links.
//
//	docs/tutorial, docs/reference/api.md
//	                 every sh block is executed against a real `berth dev`, some in a shell
//	docs/reference/options.md
//	                 is generated from the options of the processes (-rewrite)
//	docs/reference/chart.md
//	                 is generated from the values of the chart (-rewrite)
//	docs/reference/states.md
//	                 has the transitions and the requeued ends of the code (-rewrite)
//	docs/reference/reasons.md, events.md, metrics.md, findings.md, states.md
//	                 list every reason, event, metric, finding and deadline of the code
//	deploy/grafana, deploy/prometheus
//	                 show only metrics in that list
//	docs/how-to/write-a-job-service.md, docs/tutorial
//	                 show code that is part of the examples
//	README.md of a folder of docs
//	                 lists every page of the folder
//	every *.md       links only to existing files and headings
package docs

import (
	"bytes"
	"flag"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the generated pages of docs/reference and the files of the chart")

// root is the root of the repository. It is a symbolic link, because go test caches results
// by the files below the module. With a plain path, go test would return a cached result
// after a document or a program has changed.
const root = "testdata/root"

func TestMain(m *testing.M) {
	// The shell of a document finds the test itself as the program etcd.
	if filepath.Base(os.Args[0]) == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	flag.Parse()
	code := m.Run()
	if binary.dir != "" {
		os.RemoveAll(binary.dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n") //nolint:errcheck // there is no other place to report it
			code = 1
		}
	}
	os.Exit(code)
}

// binary is the program `berth`, built once for all tests. Its directory also has etcd.
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
		test, err := os.Executable()
		if err == nil {
			err = os.Symlink(test, filepath.Join(binary.dir, "etcd"))
		}
		if err != nil {
			binary.err = err
			return
		}
		build := exec.Command("go", "build", "-o", binary.path, "berth.dev/cmd/berth")
		if out, err := build.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			binary.err = err
		}
	})
	if binary.err != nil {
		t.Fatalf("cannot build berth: %v", binary.err)
	}
	return binary.path
}

// read reads a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files returns the paths of the files of the repository, with slashes, without
// hidden files and build output.
func files(t *testing.T) []string {
	t.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "bin" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && name != ".":
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
	// unanchored matches the characters of a heading that are not in its anchor.
	unanchored = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the headings of a document in the form that GitHub uses in links.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		bare := unanchored.ReplaceAllString(strings.ToLower(h[1]), "")
		list[strings.ReplaceAll(bare, " ", "-")] = true
	}
	return list
}

// TestLinksHaveTargets checks that relative links lead to existing files and headings, and
// that all other links are URLs.
func TestLinksHaveTargets(t *testing.T) {
	links := 0
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, ":") {
				// The test does not follow links to other hosts.
				to, err := url.Parse(found[1])
				if err != nil || to.Scheme != "https" || !strings.Contains(to.Host, ".") {
					t.Errorf("%s: the link %s is not an HTTPS URL (%v)", name, found[1], err)
				}
				continue
			}
			links++
			there := name
			if target != "" {
				there = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(there))); err != nil {
				t.Errorf("%s: the link target %s does not exist", name, found[1])
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

// TestEveryPageIsListed checks that the index of a folder, its README.md, links to each page
// of the folder and to the index of each folder in it.
func TestEveryPageIsListed(t *testing.T) {
	for _, name := range files(t) {
		dir, page := path.Split(name)
		if !strings.HasPrefix(name, "docs/") || path.Ext(name) != ".md" || name == "docs/README.md" {
			continue
		}
		if page == "README.md" {
			dir, page = path.Split(path.Clean(dir))
			page += "/README.md"
		}
		if !strings.Contains(read(t, dir+"README.md"), "("+page+")") {
			t.Errorf("%sREADME.md does not list %s", dir, page)
		}
	}
}

// TestDecisionsHaveAllSections checks that every decision record has all sections.
func TestDecisionsHaveAllSections(t *testing.T) {
	for _, name := range files(t) {
		if path.Dir(name) != "docs/adr" || path.Base(name) == "README.md" {
			continue
		}
		text := read(t, name)
		for _, part := range []string{"# ", "\n- Status: ", "\n- Date: ", "\n## Context\n", "\n## Decision\n",
			"\n## Consequences\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q", name, part)
			}
		}
	}
}

// TestNoLocalPaths checks that no file contains a path that exists only on one machine. The
// test concatenates these words, so that its own file does not contain them.
func TestNoLocalPaths(t *testing.T) {
	private := regexp.MustCompile(`(^|[\s"'` + "`" + `(=])(/wo` + `rk/|/tmp/w` + `t|\.\./sha` + `red)`)
	for _, name := range files(t) {
		text := read(t, name)
		if bytes.IndexByte([]byte(text), 0) >= 0 {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if private.MatchString(line) {
				t.Errorf("%s:%d contains a local path: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
}
