package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// These patterns match metrics in the code: a complete name, or the part after the prefix
// that its file declares.
var (
	metricName   = regexp.MustCompile(`"(berth_[a-z_]*[a-z])"`)
	metricPrefix = regexp.MustCompile(`prefix = "(berth_[a-z_]+_)"`)
	metricSuffix = regexp.MustCompile(`prefix\+"([a-z_]+)"`)
)

func TestMetricsAreListed(t *testing.T) {
	inCode := map[string]bool{}
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(name, "services/") &&
			!strings.HasPrefix(name, "pkg/") && !strings.HasPrefix(name, "cmd/berth-agent/") {
			continue
		}
		text := read(t, name)
		for _, f := range metricName.FindAllStringSubmatch(text, -1) {
			inCode[f[1]] = true
		}
		if prefix := metricPrefix.FindStringSubmatch(text); prefix != nil {
			for _, f := range metricSuffix.FindAllStringSubmatch(text, -1) {
				inCode[prefix[1]+f[1]] = true
			}
		}
	}
	for _, service := range model.Services { // replica.ShowFindings composes these names
		inCode["berth_"+strings.ReplaceAll(service, "-", "_")+"_findings"] = true
	}
	if len(inCode) < 35 {
		t.Fatalf("only %d metrics found in the code", len(inCode))
	}

	compareLists(t, "docs/reference/metrics.md", "metric", inCode, listedMetrics(t))
}

// TestCandidateOutcomesAreListed checks the values of a label that are a range in the code.
func TestCandidateOutcomesAreListed(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `candidates_total` .*").FindString(read(t, "docs/reference/metrics.md"))
	for outcome := model.Granted; outcome <= model.Later; outcome++ {
		if !strings.Contains(row, "`"+outcome.String()+"`") {
			t.Errorf("docs/reference/metrics.md does not list the outcome %s: %s", outcome, row)
		}
	}
}

// listedMetrics returns the metrics in docs/reference/metrics.md with their labels. The
// header of a table has the prefix, if any, its first column has the rest of each name, and
// its second column has the labels.
func listedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	head := regexp.MustCompile("^\\| (?:metric|[a-z-]+: `(berth_[a-z_]+_)…`) \\| labels \\|")
	word := regexp.MustCompile("`([a-z_]+)`")
	listed, prefix, inTable := map[string][]string{}, "", false
	for _, line := range strings.Split(read(t, "docs/reference/metrics.md"), "\n") {
		switch found := head.FindStringSubmatch(line); {
		case found != nil:
			prefix, inTable = found[1], true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable:
			labels := []string{}
			columns := strings.Split(line, "|")
			for _, w := range word.FindAllStringSubmatch(columns[2], -1) {
				labels = append(labels, w[1])
			}
			for _, w := range word.FindAllStringSubmatch(columns[1], -1) {
				listed[prefix+w[1]] = labels
			}
		}
	}
	return listed
}

// codeFindings returns the kinds of findings in the code.
func codeFindings(t *testing.T) map[string]bool {
	t.Helper()
	kind := regexp.MustCompile(`(?m)^\s*(?:Finding\w+|const kindUnavailable) += "([A-Z_]+)"`)
	inCode := map[string]bool{}
	for _, name := range files(t) {
		if !strings.HasPrefix(name, "services/") && !strings.HasPrefix(name, "pkg/loop/") || path.Ext(name) != ".go" ||
			strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, k := range kind.FindAllStringSubmatch(read(t, name), -1) {
			inCode[k[1]] = true
		}
	}
	if len(inCode) < 8 {
		t.Fatalf("only %d kinds of findings found in the code", len(inCode))
	}
	return inCode
}

func TestFindingsAreListed(t *testing.T) {
	listed := map[string]bool{}
	for _, r := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(read(t,
		"docs/reference/findings.md"), -1) {
		listed[r[1]] = true
	}
	compareLists(t, "docs/reference/findings.md", "finding", codeFindings(t), listed)
}

func TestEventsAreListed(t *testing.T) {
	inCode := map[string]bool{}
	for kind, name := range berthv1.Event_Kind_name {
		if kind != int32(berthv1.Event_KIND_UNSPECIFIED) {
			inCode[name] = true
		}
	}
	listed := map[string]bool{}
	for _, r := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(read(t, "docs/reference/events.md"), -1) {
		listed[r[1]] = true
	}
	compareLists(t, "docs/reference/events.md", "kind of event", inCode, listed)
}

// compareLists reports the names that only one of the two lists has.
func compareLists[V any](t *testing.T, document, thing string, inCode map[string]bool, listed map[string]V) {
	t.Helper()
	for name := range inCode {
		if _, ok := listed[name]; !ok {
			t.Errorf("%s does not list %s", document, name)
		}
	}
	for name := range listed {
		if !inCode[name] {
			t.Errorf("%s lists %s, which is not a %s in the code", document, name, thing)
		}
	}
}
