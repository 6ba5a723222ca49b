package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestCodeMatchesExamples checks that the code in a document is part of an example that a
// test executes.
func TestCodeMatchesExamples(t *testing.T) {
	for _, shown := range []struct {
		document, language string
		examples           []string
	}{
		{"docs/how-to/write-a-job-service.md", "go", []string{"examples/jobservice/main.go", "examples/security/security.go",
			"client/example_calls_test.go"}},
		{"docs/how-to/autoscale.md", "go", []string{"examples/autoscaler/example_test.go"}},
		{"docs/tutorial/reserve-your-first-gang.md", "yaml", []string{"examples/train.yaml", "examples/etl.yaml"}},
		{"docs/how-to/restart-workers.md", "yaml", []string{"examples/restart.yaml", "examples/replica.yaml"}},
		{"docs/how-to/signal-workers.md", "yaml", []string{"examples/signal.yaml"}},
		{"docs/how-to/hold-capacity.md", "yaml", []string{"examples/hold.yaml"}},
		{"docs/tutorial/kubernetes.md", "yaml", []string{"examples/kubernetes/values.yaml",
			"examples/kubernetes/sleep.yaml", "examples/kubernetes/more.yaml"}},
		{"docs/tutorial/kubernetes.md", "dockerfile", []string{"examples/kubernetes/Dockerfile"}},
	} {
		var examples strings.Builder
		for _, name := range shown.examples {
			examples.WriteString(read(t, name))
		}
		block := regexp.MustCompile("(?ms)^```" + shown.language + "\n(.*?)^```")
		blocks := block.FindAllStringSubmatch(read(t, shown.document), -1)
		if len(blocks) < len(shown.examples) {
			t.Fatalf("%s shows %d blocks of %s, want %d", shown.document, len(blocks), shown.language, len(shown.examples))
		}
		for _, block := range blocks {
			if !strings.Contains(examples.String(), block[1]) {
				t.Errorf("%s: no example has this code:\n%s", shown.document, block[1])
			}
		}
	}
}
