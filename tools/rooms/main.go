// Command rooms prints the size and the tangle of each package of Go code: its lines, the number of methods
// of its largest type, and the pairs of its files that call each other. With -limits, it fails if a package
// exceeds a limit of a file, and with -lower, it lowers the limits of the file to what the packages have.
//
// It reads the syntax only: a call x.name() counts as a call of the method if x is the receiver of the function
// around it, or if one type of the package has a method of that name. Tests and generated files do not count.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	limits := flag.String("limits", "", "file with the limits of packages; more than a limit is an error")
	lower := flag.Bool("lower", false, "lower the limits in the file of -limits")
	top := flag.String("top", ".", "directory to which all paths are relative")
	flag.Parse()
	err := os.Chdir(*top)
	var rooms []room
	if err == nil {
		rooms, err = survey(flag.Args())
	}
	if err == nil && *limits != "" {
		err = compare(rooms, *limits, *lower)
	} else if err == nil {
		show(rooms)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// room is a package.
type room struct {
	dir string
	// lines counts all lines, and methods those of the largest type.
	lines, methods int
	// pairs are the pairs of files that call each other.
	pairs [][2]string
}

// survey returns the packages below directories, by their directories.
func survey(tops []string) (rooms []room, err error) {
	sources := map[string][]string{}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return filepath.SkipDir
			case !d.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
				dir := filepath.ToSlash(filepath.Dir(name))
				sources[dir] = append(sources[dir], name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		r, err := look(dir, sources[dir])
		if err != nil {
			return nil, err
		}
		if r.lines > 0 {
			rooms = append(rooms, r)
		}
	}
	return rooms, nil
}

// look reads the files of a package.
func look(dir string, names []string) (room, error) {
	r := room{dir: dir}
	files, fileSet := map[string]*ast.File{}, token.NewFileSet()
	for _, name := range names {
		f, err := parser.ParseFile(fileSet, name, nil, parser.ParseComments)
		if err != nil {
			return r, err
		}
		if !ast.IsGenerated(f) {
			files[filepath.Base(name)] = f
			r.lines += fileSet.File(f.Package).LineCount()
		}
	}
	// The files of functions and methods, by name, and of methods also by type.
	functions, methods, own := map[string][]string{}, map[string][]string{}, map[string][]string{}
	sizes := map[string]int{}
	for name, f := range files {
		for _, d := range f.Decls {
			switch d, is := d.(*ast.FuncDecl); {
			case !is:
			case d.Recv == nil:
				functions[d.Name.Name] = append(functions[d.Name.Name], name)
			default:
				of := receiver(d.Recv.List[0].Type)
				methods[d.Name.Name] = append(methods[d.Name.Name], name)
				own[of+"."+d.Name.Name] = append(own[of+"."+d.Name.Name], name)
				sizes[of]++
			}
		}
	}
	for _, n := range sizes {
		r.methods = max(r.methods, n)
	}
	calls := map[[2]string]bool{}
	for name, f := range files {
		imported := imports(f)
		called := func(in []string) {
			for _, other := range in {
				calls[[2]string{name, other}] = true
			}
		}
		for _, d := range f.Decls {
			var of, self string // the type and the name of the receiver
			if d, is := d.(*ast.FuncDecl); is && d.Recv != nil && len(d.Recv.List[0].Names) > 0 {
				of, self = receiver(d.Recv.List[0].Type), d.Recv.List[0].Names[0].Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				switch f := call.Fun.(type) {
				case *ast.Ident:
					called(functions[f.Name])
				case *ast.SelectorExpr:
					x, simple := f.X.(*ast.Ident)
					switch exact := own[of+"."+f.Sel.Name]; {
					case simple && x.Name == self && exact != nil:
						called(exact)
					case simple && imported[x.Name]:
					case len(methods[f.Sel.Name]) == 1:
						called(methods[f.Sel.Name])
					}
				}
				return true
			})
		}
	}
	for pair := range calls {
		if pair[0] < pair[1] && calls[[2]string{pair[1], pair[0]}] {
			r.pairs = append(r.pairs, pair)
		}
	}
	slices.SortFunc(r.pairs, func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	})
	return r, nil
}

// receiver returns the name of the type of a receiver.
func receiver(of ast.Expr) string {
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// imports returns the names that a file has for imported packages.
func imports(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, i := range f.Imports {
		name := path.Base(strings.Trim(i.Path.Value, `"`))
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}
