package transcript

import (
	"strings"
	"testing"
)

func TestFirstDifference(t *testing.T) {
	for _, c := range []struct{ want, got, says string }{
		{"a\nb\n", "a\nb\n", ""},
		{"a\nb\n", "a\nc\n", "line 2:"},
		{"a\nb", "a", "has 1 lines, want 2"},
	} {
		if got := firstDifference(c.want, c.got); !strings.HasPrefix(got, c.says) || (got == "") != (c.says == "") {
			t.Errorf("firstDifference(%q, %q) = %q", c.want, c.got, got)
		}
	}
}
