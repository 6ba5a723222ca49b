package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// row matches a table row with a reason and its meaning.
var row = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (.*) \\|$")

// codeReasons returns the reasons in the code.
func codeReasons(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "api/fault/reason.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	inCode := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		inCode[word] = true
		return true
	})
	if len(inCode) < 20 {
		t.Fatalf("only %d reasons found in the code", len(inCode))
	}
	return inCode
}

func TestReasonsAreListed(t *testing.T) {
	inCode := codeReasons(t)
	listed := map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(read(t, "docs/reference/reasons.md"), -1) {
		word, meaning := r[1], r[2]
		switch {
		case listed[word]:
			t.Errorf("docs/reference/reasons.md has %s twice", word)
		case !inCode[word]:
			t.Errorf("docs/reference/reasons.md lists %s, which is not a reason in the code", word)
		case meaning == "":
			t.Errorf("docs/reference/reasons.md does not explain %s", word)
		}
		listed[word] = true
	}
	for word := range inCode {
		if !listed[word] {
			t.Errorf("docs/reference/reasons.md does not list %s", word)
		}
	}
}
