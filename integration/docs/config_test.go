package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exampleFile matches the first line of an example of a configuration file.
var exampleFile = regexp.MustCompile(`^# (?:/etc/berth/)?([a-z-]+)\.yaml\b`)

// checkConfig checks a configuration file of a process with berth doctor. Nothing in it may be
// refused, whatever the other options are.
func checkConfig(t *testing.T, place, process, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), process+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(berth(t), "doctor", "--config", file).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "OK ") {
		t.Errorf("%s: %v\n%s", place, err, out)
	}
}

// The examples of configuration files are valid.
func TestConfigurationExamples(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../../docs", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for i, block := range strings.Split(string(text), fence+"yaml\n")[1:] {
			block, _, _ = strings.Cut(block, fence)
			if first := exampleFile.FindStringSubmatch(block); first != nil && first[1] != "values" {
				n++
				checkConfig(t, fmt.Sprintf("%s, YAML block %d", path, i+1), first[1], block)
			}
		}
		return err
	})
	if err != nil || n < 2 {
		t.Errorf("%d examples: %v", n, err)
	}
}

// The settings in the files of the packages are valid, also those in comments.
func TestEnvironmentExamples(t *testing.T) {
	files, err := filepath.Glob("../../deploy/systemd/*.env")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v: %v", files, err)
	}
	setting := regexp.MustCompile(`(?m)^#?BERTH_([A-Z_]+)=(.*)$`)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		config := ""
		for _, s := range setting.FindAllStringSubmatch(string(text), -1) {
			config += strings.ToLower(strings.ReplaceAll(s[1], "_", "-")) + ": " + s[2] + "\n"
		}
		if config == "" {
			t.Errorf("%s has no settings", path)
		}
		checkConfig(t, path, strings.TrimSuffix(filepath.Base(path), ".env"), config)
	}
}
