package docs

import (
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// Go code that a document shows is that of the example which is run as a test.
func TestCodeIsThatOfTheExamples(t *testing.T) {
	example := read(t, "examples/jobservice/main.go")
	blocks := goBlock.FindAllStringSubmatch(read(t, "docs/how-to/write-a-job-service.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("no code is shown")
	}
	for _, block := range blocks {
		if !strings.Contains(example, block[1]) {
			t.Errorf("this is no part of the example:\n%s", block[1])
		}
	}
}
