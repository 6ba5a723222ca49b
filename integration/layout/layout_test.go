// Package layout guarantees that all packages follow the import rules.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type pkg struct {
	ImportPath string
	Imports    []string
	// TestImports and XTestImports are the imports of its test files.
	TestImports, XTestImports []string
	// Dir is its folder, and TestGoFiles and XTestGoFiles are its test files.
	Dir                       string
	TestGoFiles, XTestGoFiles []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Dir,TestGoFiles,XTestGoFiles", "work").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("only %d packages found", len(list))
	}
	return list
}

// layer returns the layer of a package. A package may import packages of lower layers. It
// may import packages of its own layer if TestServicesDoNotImportEachOther permits that.
func layer(path string) int {
	return slices.IndexFunc([]string{
		"berth.dev/api", "berth.dev/client", "berth.dev/examples", "berth.dev/pkg", "berth.dev/testkit",
		"berth.dev/services", "berth.dev/cmd", "berth.dev/integration",
	}, func(module string) bool { return within(path, module) })
}

// within reports whether a package is in one of the folders.
func within(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder ||
			strings.HasPrefix(path, folder+"/")
	})
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if layer(imported) > layer(p.ImportPath) {
				t.Errorf("%s imports %s, which is in a higher layer", p.ImportPath, imported)
			}
		}
	}
}

func service(path string) string {
	rest, ok := strings.CutPrefix(path, "berth.dev/services/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func TestServicesDoNotImportEachOther(t *testing.T) {
	for _, p := range packages(t) {
		own := service(p.ImportPath)
		for _, imported := range p.Imports {
			if other := service(imported); own != "" && other != "" && other != own {
				t.Errorf("%s imports %s: services talk through the gateway only", p.ImportPath, imported)
			}
		}
	}
}

// TestCoresArePure checks that the cores, and the packages whose types they use, import no
// clock, network or store.
func TestCoresArePure(t *testing.T) {
	pure := map[string]bool{
		"berth.dev/pkg/core": true, "berth.dev/pkg/model": true, "berth.dev/pkg/resource": true,
		"berth.dev/pkg/constraint": true, "berth.dev/api/fault": true,
		"berth.dev/services/executor-state/match": true, "berth.dev/services/executor-state/policy": true,
		"berth.dev/services/executor-state/usage": true,
		"berth.dev/services/registry/request":     true, "berth.dev/services/registry/scheduler": true,
	}
	cores := map[string]bool{
		"berth.dev/services/registry/queue": true, "berth.dev/services/executor-state/inventory": true,
		"berth.dev/services/assigner/dispatch": true,
	}
	forbidden := map[string]bool{"net": true, "net/http": true, "os": true, "sync": true, "context": true,
		"math/rand": true, "math/rand/v2": true}
	seen := 0
	for _, p := range packages(t) {
		if !pure[p.ImportPath] && !cores[p.ImportPath] {
			continue
		}
		seen++
		for _, imported := range p.Imports {
			ours := strings.HasPrefix(imported, "berth.dev/")
			switch {
			case ours && !pure[imported], forbidden[imported], !ours && strings.Contains(imported, "."):
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
	if want := len(pure) + len(cores); seen != want {
		t.Errorf("%d pure packages found, want %d", seen, want)
	}
}

// TestEtcdClientImports checks that only the packages that handle the behavior of etcd
// import its client.
func TestEtcdClientImports(t *testing.T) {
	allowed := []string{"berth.dev/pkg/store", "berth.dev/pkg/leader",
		"berth.dev/services/executor-state/internal/liveness", "berth.dev/integration"}
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, "go.etcd.io/etcd/client") {
				continue
			}
			if !within(p.ImportPath, allowed...) {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
}

// TestTestkitImports checks that production packages do not import the testkit. The list
// does not contain the imports of test files. A package whose name ends in "test" is a test
// package.
func TestTestkitImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if within(imported, "berth.dev/testkit") && !within(p.ImportPath, "berth.dev/testkit", "berth.dev/integration") &&
				!strings.HasSuffix(p.ImportPath, "test") {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
}

// TestPropertyTestsHaveFixedSeeds checks that the property tests of `make test` never fail by
// chance: each of their packages imports testkit/fixedseed. The client must not import the
// testkit and does the same in a file of its own.
func TestPropertyTestsHaveFixedSeeds(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		imports := slices.Concat(p.TestImports, p.XTestImports)
		if !slices.Contains(imports, "pgregory.net/rapid") {
			continue
		}
		seen++
		if within(p.ImportPath, "berth.dev/client") {
			if own, err := os.ReadFile(filepath.Join(p.Dir, "seed_test.go")); err != nil ||
				!strings.Contains(string(own), `flag.Set("rapid.seed"`) {
				t.Errorf("%s has no fixed seed: %v", p.ImportPath, err)
			}
		} else if !slices.Contains(imports, "berth.dev/testkit/fixedseed") {
			t.Errorf("a test of %s imports rapid, and none imports testkit/fixedseed", p.ImportPath)
		}
	}
	if seen < 10 {
		t.Errorf("only %d packages with property tests found", seen)
	}
}

// unseeded matches calls of math/rand that draw a random seed.
var unseeded = regexp.MustCompile(`\brand\.(N|Perm|Shuffle|Int\w*|Uint\w*|Float\w*|NormFloat64|ExpFloat64)\(`)

// TestTestsDrawNoRandomSeeds checks that tests use math/rand only with a seed. The exceptions draw a
// random seed only if a flag says so.
func TestTestsDrawNoRandomSeeds(t *testing.T) {
	exceptions := []string{"chaos/chaos_test.go", "mutants/mutants_test.go", "sim/sim_test.go"}
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if call := unseeded.Find(source); call != nil &&
				!slices.Contains(exceptions, filepath.Base(p.Dir)+"/"+name) {
				t.Errorf("%s/%s calls %s...): draw from a seed, such as that of testkit/fixedseed", p.ImportPath, name, call)
			}
		}
	}
}

// TestEtcdServerImports checks that berth is the only program with an etcd server, which it
// needs for clusters on one machine.
func TestEtcdServerImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if within(imported, "go.etcd.io/etcd/server") && !within(p.ImportPath, "berth.dev/cmd/berth", "berth.dev/testkit",
				"berth.dev/integration") {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
}

// TestAgentDependencies checks that the program berth-agent does not contain the command
// line, the benchmarks, the demo or etcd.
func TestAgentDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "berth.dev/cmd/berth-agent").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	built := strings.Fields(string(out))
	if !slices.Contains(built, "berth.dev/pkg/agent") {
		t.Errorf("berth-agent is built from %q", built)
	}
	for _, path := range built {
		if within(path, "go.etcd.io", "berth.dev/cmd/berth", "berth.dev/client", "berth.dev/testkit", "berth.dev/services") {
			t.Errorf("berth-agent contains %s", path)
		}
	}
}

// TestMakeRunsEveryIntegrationTest checks that `make test` names every package of this module
// with tests, because it runs the packages one at a time.
func TestMakeRunsEveryIntegrationTest(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(makefile), "\ntest:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	tests, err := filepath.Glob("../*/*_test.go")
	if err != nil || len(tests) == 0 {
		t.Fatal("no tests", err)
	}
	for _, file := range tests {
		if name := filepath.Base(filepath.Dir(file)); !strings.Contains(recipe, " ./integration/"+name) {
			t.Errorf("make test does not run ./integration/%s", name)
		}
	}
}
