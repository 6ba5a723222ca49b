package docs

import (
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// TestCodeInDocuments checks that Go code in documents is the code of the tested example.
func TestCodeInDocuments(t *testing.T) {
	example := read(t, "examples/jobservice/main.go")
	blocks := goBlock.FindAllStringSubmatch(read(t, "docs/job-services.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("no code is shown")
	}
	for _, block := range blocks {
		if !strings.Contains(example, block[1]) {
			t.Errorf("this is no part of the example:\n%s", block[1])
		}
	}
}
