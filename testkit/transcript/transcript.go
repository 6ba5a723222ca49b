// Package transcript runs tests whose files contain commands and their complete expected
// output.
//
// A test passes only if playing a file reproduces the whole file. With the flag -rewrite,
// the new output replaces the file, and you review the diff. The play function defines
// the commands and the form of their output.
package transcript

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the current output into the transcripts")

// Run plays every file *.txt in testdata and its subdirectories, each file in a subtest.
// play returns the text with the current output of its commands.
func Run(t *testing.T, play func(t *testing.T, text string) string) {
	t.Helper()
	files, err := find("testdata")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		name, _ := filepath.Rel("testdata", strings.TrimSuffix(file, ".txt"))
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after := play(t, string(before))
			if *rewrite {
				if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if difference := firstDifference(string(before), after); difference != "" {
				t.Errorf("%s: %s", file, difference)
			}
		})
	}
}

// find returns the transcripts in a directory and its subdirectories, in order.
func find(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".txt" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// firstDifference returns the first line that differs and the whole new transcript. It returns
// "" if the texts are equal.
func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			return fmt.Sprintf("line %d:\nwant %q\n got %q\nwhole transcript:\n%s", i+1, wants[i], gots[i], got)
		}
	}
	return fmt.Sprintf("has %d lines, want %d; whole transcript:\n%s", len(gots), len(wants), got)
}
