package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestOneVersion checks that the chart, the Makefile and the documents name the version in
// the file VERSION.
func TestOneVersion(t *testing.T) {
	version := strings.TrimSpace(read(t, "VERSION"))
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.-]+)?$`).MatchString(version) {
		t.Fatalf("VERSION is %q, want a semantic version that is a valid image tag", version)
	}
	check := func(name, pattern, want string) int {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, name), -1)
		for _, f := range found {
			if f[1] != want {
				t.Errorf("%s: %q, want %s", name, f[0], want)
			}
		}
		return len(found)
	}
	for _, c := range []struct{ name, pattern, want string }{
		{"deploy/helm/berth/Chart.yaml", `(?m)^version: (.*)$`, version},
		{"deploy/helm/berth/Chart.yaml", `(?m)^appVersion: (.*)$`, version},
		{"Makefile", `(?m)^VERSION .?= (.*)$`, "$(shell cat VERSION)"},
	} {
		if check(c.name, c.pattern, c.want) != 1 {
			t.Errorf("%s: want one line that matches %s", c.name, c.pattern)
		}
	}
	packaged := strings.ReplaceAll(version, "-", "~")
	images, packages := 0, 0
	for _, name := range files(t) {
		if path.Ext(name) == ".md" {
			images += check(name, `[/= ]berth:([0-9A-Za-z_][0-9A-Za-z_.-]*)`, version)
			// The packages sort a version before the release with a tilde.
			packages += check(name, `\bberth(?:-agent|-server)?_([0-9.]+[^_ ]*)_(?:amd64|arm64|all)\.deb`, packaged)
			check(name, `\bberth(?:-agent|-server)?-([0-9.]+[^_ ]*)-1\.[a-z0-9_]+\.rpm`, packaged)
			check(name, `\bberth-([0-9][^/ ]*?)(?:-(?:linux|darwin)-a[a-z0-9]+\.tar\.gz|-go-modules\.tar\.gz|-image\.tar|\.tgz)`,
				version)
		}
	}
	if images == 0 || packages == 0 {
		t.Error("no document contains an image and a package")
	}
}
