package stream

import "testing"

func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "0-0", "7-3", "007-1", "-1-2", "9223372036854775807-9223372036854775807",
		"9223372036854775808-0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCursor(text)
		if err != nil {
			return
		}
		if c.Revision < 0 || c.Index < 0 || text != "" && c.String() != text {
			t.Fatalf("%q became %v", text, c)
		}
	})
}
