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

// row matches a reason and its meaning.
var row = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (.*) \\|$")

func TestDocumentedReasons(t *testing.T) {
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

	told := map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(read(t, "docs/reasons.md"), -1) {
		word, meaning := r[1], r[2]
		switch {
		case told[word]:
			t.Errorf("docs/reasons.md has %s twice", word)
		case !inCode[word]:
			t.Errorf("docs/reasons.md tells of %s, which is no reason", word)
		case meaning == "":
			t.Errorf("docs/reasons.md does not say what %s means", word)
		}
		told[word] = true
	}
	for word := range inCode {
		if !told[word] {
			t.Errorf("docs/reasons.md does not tell of %s", word)
		}
	}
}
