package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// prefix begins the paths of all modules of the repository.
const prefix = "berth.dev/"

// modules writes the files of a module proxy with the modules of the repository, except
// those without importers.
//
// In the repository, the modules require each other without a version and replace each
// other by a directory. `go install MODULE@VERSION` refuses a module with such directives.
// So the published go.mod has none, and requires the version of the release instead.
func (r release) modules() error {
	work, err := os.ReadFile("go.work")
	if err != nil {
		return err
	}
	file, err := modfile.ParseWork("go.work", work, nil)
	if err != nil {
		return err
	}
	proxy := r.in("modules")
	if err := os.RemoveAll(proxy); err != nil {
		return err
	}
	for _, use := range file.Use {
		dir := path.Clean(use.Path)
		if dir == "examples" || dir == "integration" {
			continue
		}
		if err := r.module(proxy, dir); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return r.tarGz(filepath.Join(r.out, "berth-"+r.version+"-go-modules.tar.gz"), "", proxy)
}

// module adds a module to the files of a proxy.
func (r release) module(proxy, dir string) error {
	version := module.Version{Path: prefix + dir, Version: "v" + r.version}
	mod, err := r.published(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	checked, err := zip.CheckDir(dir)
	if err != nil {
		return err
	}
	var files []zip.File
	for _, file := range checked.Valid {
		name := strings.TrimPrefix(filepath.ToSlash(file), dir+"/")
		// rapid writes the input of failed tests there, and git ignores it.
		if name != "go.mod" && !strings.Contains(name, "testdata/rapid/") {
			files = append(files, onDisk{name, file})
		}
	}
	at := filepath.Join(proxy, filepath.FromSlash(version.Path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	info := fmt.Sprintf("{%q:%q,%q:%q}\n", "Version", version.Version, "Time", r.date.Format(time.RFC3339))
	for name, content := range map[string][]byte{
		version.Version + ".mod": mod, version.Version + ".info": []byte(info), "list": []byte(version.Version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
			return err
		}
	}
	files = append(files, onDisk{"go.mod", filepath.Join(at, version.Version+".mod")}, onDisk{"LICENSE", "LICENSE"})
	return create(filepath.Join(at, version.Version+".zip"), func(w io.Writer) error {
		return zip.Create(w, version, files)
	})
}

// published returns the go.mod of a module as consumers see it.
func (r release) published(name string) ([]byte, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, content, nil)
	if err != nil {
		return nil, err
	}
	for _, replace := range file.Replace {
		if !strings.HasPrefix(replace.Old.Path, prefix) {
			return nil, fmt.Errorf("a published module cannot replace %s", replace.Old.Path)
		}
		if err := file.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
			return nil, err
		}
	}
	for _, require := range file.Require {
		if strings.HasPrefix(require.Mod.Path, prefix) {
			if err := file.AddRequire(require.Mod.Path, "v"+r.version); err != nil {
				return nil, err
			}
		}
	}
	file.Cleanup()
	return file.Format()
}

// onDisk is a file of a module.
type onDisk struct{ name, file string }

func (f onDisk) Path() string                 { return f.name }
func (f onDisk) Lstat() (os.FileInfo, error)  { return os.Lstat(f.file) }
func (f onDisk) Open() (io.ReadCloser, error) { return os.Open(f.file) }
