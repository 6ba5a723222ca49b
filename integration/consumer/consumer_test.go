// Package consumer guarantees that a program outside the repository needs only the client
// and the API. The test builds such a program from their published modules.
package consumer

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"berth.dev/client"
	"berth.dev/pkg/model"
)

const root = "../.."

// built lists the modules whose packages a program with the client may contain.
var built = []string{
	"berth.dev/api", "berth.dev/client",
	"google.golang.org/grpc", "google.golang.org/protobuf",
	"google.golang.org/genproto/googleapis/api", "google.golang.org/genproto/googleapis/rpc",
	"github.com/grpc-ecosystem/grpc-gateway/v2", // the REST mapping is part of the API's package
	"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
}

// kept lists prefixes of modules. No such module may be in the module graph.
var kept = []string{
	"berth.dev/pkg", "berth.dev/services", "berth.dev/cmd", "berth.dev/testkit",
	"go.etcd.io/", "github.com/spf13/", "github.com/prometheus/", "k8s.io/",
}

// TestConsumerNeedsOnlyTheClient builds a program in a module of its own, without the
// workspace and without replace directives. The program gets the client and the API from a
// module proxy.
func TestConsumerNeedsOnlyTheClient(t *testing.T) {
	proxy := t.TempDir()
	file, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	// The API has the version that the client requires.
	clientVersion := "v" + strings.TrimSpace(string(file))
	publish(t, proxy, "client", clientVersion)
	publish(t, proxy, "api", required(t, "client", "berth.dev/api"))
	dir := t.TempDir()
	program, err := os.ReadFile("testdata/main.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "main.go"), program)
	write(t, filepath.Join(dir, "go.mod"), fmt.Appendf(nil,
		"module example.com/consumer\n\ngo 1.26.0\n\nrequire berth.dev/client %s\n", clientVersion))
	machine := strings.Fields(run(t, ".", nil, "go", "env", "GOMODCACHE", "GOPROXY"))
	env := []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOSUMDB=off", "GOTOOLCHAIN=local",
		// The test uses a module cache of its own, so the versions published here do not reach
		// the machine's cache.
		"GOMODCACHE=" + t.TempDir(),
		// The machine's cache has all other modules, because this repository needs them too.
		fmt.Sprintf("GOPROXY=file://%s,file://%s/cache/download,%s", proxy, machine[0], machine[1]),
	}
	run(t, dir, env, "go", "build", "-o", "consumer", ".")
	if out := run(t, dir, env, "./consumer"); out != "invalid REQUIRED\n" {
		t.Errorf("output %q", out)
	}
	modules := strings.Fields(run(t, dir, env, "go", "list", "-m", "-f", "{{.Path}}", "all"))
	if !slices.Contains(modules, "berth.dev/api") {
		t.Errorf("modules %q", modules)
	}
	for _, path := range modules {
		if slices.ContainsFunc(kept, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			t.Errorf("the consumer requires the module %s", path)
		}
	}
	for pkg := range strings.Lines(run(t, dir, env, "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.Module.Path}} {{.ImportPath}}{{end}}", "berth.dev/client")) {
		if from, _, _ := strings.Cut(pkg, " "); !slices.Contains(built, from) {
			t.Errorf("the consumer builds a package of module %s", pkg)
		}
	}
}

// publish adds a module of the repository to the directory of a module proxy.
func publish(t *testing.T, proxy, dir, version string) {
	t.Helper()
	v := module.Version{Path: "berth.dev/" + dir, Version: version}
	var content bytes.Buffer
	if err := zip.CreateFromDir(&content, v, filepath.Join(root, dir)); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(proxy, v.Path, "@v", v.Version)
	write(t, at+".zip", content.Bytes())
	write(t, at+".mod", mod)
	write(t, at+".info", fmt.Appendf(nil, `{"Version":%q}`, v.Version))
}

// required returns the version of a module that the go.mod in dir requires.
func required(t *testing.T, dir, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Require {
		if r.Mod.Path == path {
			return r.Mod.Version
		}
	}
	t.Fatalf("%s/go.mod does not require %s", dir, path)
	return ""
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return string(out)
}

// TestRetentionOfClientAndServer compares the two retention constants, because neither
// module may import the other.
func TestRetentionOfClientAndServer(t *testing.T) {
	if client.KeepEnded != model.KeepTerminal {
		t.Errorf("the client keeps ended versions for %v, the registry for %v", client.KeepEnded, model.KeepTerminal)
	}
}
