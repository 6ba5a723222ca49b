package client_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// Every exported function and method has an example whose output is compared.
func TestEverythingHasAnExample(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	var all []*ast.File
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		file, err := parser.ParseFile(files, entry.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file)
	}
	client, err := doc.NewFromFiles(files, all, "berth.dev/client")
	if err != nil {
		t.Fatal(err)
	}
	functions := client.Funcs
	for _, exported := range client.Types {
		functions = append(append(functions, exported.Funcs...), exported.Methods...)
	}
	if len(functions) < 50 {
		t.Errorf("only %d functions were found", len(functions))
	}
	for _, f := range functions {
		if len(f.Examples) == 0 {
			t.Errorf("%s.%s requires an example", f.Recv, f.Name)
		}
		for _, example := range f.Examples {
			if example.Output == "" {
				t.Errorf("the example of %s.%s requires a comment // Output:", f.Recv, f.Name)
			}
		}
	}
}
