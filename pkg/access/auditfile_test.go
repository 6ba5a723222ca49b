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
	audit, err := OpenAudit(name, false, slog.New(slog.DiscardHandler))
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
		want   []string // the peers in the file with the name
	}{
		{"first", func() {}, []string{"first"}},
		{"second", func() {}, []string{"first", "second"}},
		{"moved", move, []string{"moved"}},
		{"again", func() {}, []string{"moved", "again"}},
		{"created", func() { move(); must(os.WriteFile(name, nil, 0o600)) }, []string{"created"}},
		{"deleted", func() { must(os.Remove(name)) }, []string{"deleted"}},
		{"truncated", func() { must(os.Truncate(name, 0)) }, []string{"truncated"}},
	} {
		step.rotate()
		audit.Rejected("--listen", step.peer, "plain text")
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
}
