package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// Metrics in the code: a whole name, or the part after the prefix of its file.
var (
	figure       = regexp.MustCompile(`"(berth_[a-z_]*[a-z])"`)
	figurePrefix = regexp.MustCompile(`prefix = "(berth_[a-z_]+_)"`)
	figureAfter  = regexp.MustCompile(`prefix\+"([a-z_]+)"`)
)

func TestDocumentedMetrics(t *testing.T) {
	inCode := map[string]bool{}
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(name, "services/") {
			continue
		}
		text := read(t, name)
		for _, f := range figure.FindAllStringSubmatch(text, -1) {
			inCode[f[1]] = true
		}
		if prefix := figurePrefix.FindStringSubmatch(text); prefix != nil {
			for _, f := range figureAfter.FindAllStringSubmatch(text, -1) {
				inCode[prefix[1]+f[1]] = true
			}
		}
	}
	if len(inCode) < 35 {
		t.Fatalf("only %d figures found in the code", len(inCode))
	}

	same(t, "docs/operating.md", "figure", inCode, figuresTold(t))
}

// figuresTold returns the metrics in docs/operating.md: a table has the prefix in its
// header, and the rest in the first column.
func figuresTold(t *testing.T) map[string]bool {
	t.Helper()
	head := regexp.MustCompile("^\\| [a-z-]+: `(berth_[a-z_]+_)…` \\|")
	word := regexp.MustCompile("`([a-z_]+)`")
	told, prefix := map[string]bool{}, ""
	for _, line := range strings.Split(read(t, "docs/operating.md"), "\n") {
		switch found := head.FindStringSubmatch(line); {
		case found != nil:
			prefix = found[1]
		case !strings.HasPrefix(line, "|"):
			prefix = ""
		case prefix != "":
			for _, w := range word.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
				told[prefix+w[1]] = true
			}
		}
	}
	return told
}

func TestDocumentedFindings(t *testing.T) {
	kind := regexp.MustCompile(`(?m)^\s*(?:Finding\w+|const kindUnavailable) += "([A-Z_]+)"`)
	inCode := map[string]bool{}
	for _, name := range files(t) {
		if !strings.HasPrefix(name, "services/") && !strings.HasPrefix(name, "pkg/loop/") || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, k := range kind.FindAllStringSubmatch(read(t, name), -1) {
			inCode[k[1]] = true
		}
	}
	if len(inCode) < 8 {
		t.Fatalf("only %d kinds of findings found in the code", len(inCode))
	}
	_, section, _ := strings.Cut(read(t, "docs/concepts.md"), "\n## Findings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]bool{}
	for _, r := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		told[r[1]] = true
	}
	same(t, "docs/concepts.md", "finding", inCode, told)
}

// same fails for entries that only one of the two lists has.
func same(t *testing.T, document, thing string, inCode, told map[string]bool) {
	t.Helper()
	for name := range inCode {
		if !told[name] {
			t.Errorf("%s does not tell of %s", document, name)
		}
	}
	for name := range told {
		if !inCode[name] {
			t.Errorf("%s tells of %s, which is no %s", document, name, thing)
		}
	}
}
