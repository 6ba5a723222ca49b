package access

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Entries follow the name of an audit log. Once logrotate has moved or deleted the file, the next
// entry is in a file with the name, whether logrotate has created the file or not. A file that
// logrotate copies and truncates stays the same.
func TestAuditLogFollowsItsName(t *testing.T) {
	dir := t.TempDir()
	name, old := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.1")
	var log strings.Builder
	audit, err := OpenAudit(name, false, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer audit.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	move := func() { must(os.Rename(name, old)) }
	for _, step := range []struct {
		peer   string
		rotate func()
		want   []string // the peers in the file with the name; nil if no line can be written
	}{
		{"first", func() {}, []string{"first"}},
		{"second", func() {}, []string{"first", "second"}},
		{"moved", move, []string{"moved"}},
		{"again", func() {}, []string{"moved", "again"}},
		{"created", func() { move(); must(os.WriteFile(name, nil, 0o600)) }, []string{"created"}},
		{"deleted", func() { must(os.Remove(name)) }, []string{"deleted"}},
		{"truncated", func() { must(os.Truncate(name, 0)) }, []string{"truncated"}},
		{"directory", func() { move(); must(os.Mkdir(name, 0o700)) }, nil},
		{"full", func() { must(os.Remove(name)); must(os.Symlink("/dev/full", name)) }, nil},
		{"writable", func() { must(os.Remove(name)) }, []string{"writable"}},
	} {
		step.rotate()
		audit.Rejected("--listen", step.peer, "plain text")
		if step.want == nil {
			if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() {
				t.Fatalf("%s: the file was replaced: %v, %v", step.peer, info, err)
			}
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("%s: %v", step.peer, err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(lines) != len(step.want) {
			t.Fatalf("%s: the file has %q, want the peers %v", step.peer, text, step.want)
		}
		for i, want := range step.want {
			if !strings.HasPrefix(lines[i], "{") || !strings.Contains(lines[i], `"peer":"`+want+`"`) {
				t.Errorf("%s: line %d is %q, want the peer %s", step.peer, i, lines[i], want)
			}
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "cannot write to the audit log") ||
		!strings.Contains(got, "is a directory") || !strings.Contains(got, "lostEntries=2") {
		t.Errorf("the log is\n%s", got)
	}
}
