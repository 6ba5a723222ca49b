// Package transcript runs tests that read like a conversation: files of
// commands and of what came of them.
//
// It promises that a file is the whole expectation: it is played, and what it
// becomes has to be what it was. With the flag -rewrite the files are written
// anew, and the diff is what there is to review. What a command is, and where
// its output goes, is the player's.
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

var rewrite = flag.Bool("rewrite", false, "write what happens into the transcripts")

// Run plays every file *.txt in testdata, and in the folders in it, of the
// package under test, each in a test of its own. Play answers the text with the
// output as it now is.
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

// find lists the transcripts under a folder, in order.
func find(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".txt" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// firstDifference names the first line that differs, and shows what the whole
// has become.
func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			return fmt.Sprintf("line %d:\nwant %q\n got %q\nthe whole:\n%s", i+1, wants[i], gots[i], got)
		}
	}
	return fmt.Sprintf("it has %d lines, and had %d; the whole:\n%s", len(gots), len(wants), got)
}
