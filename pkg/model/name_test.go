package model

import (
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "A-1_b.c": true, "": false, ".a": false, "-a": false, "a/b": false, "a b": false, "ä": false,
		"a\xff":                  false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if ValidName(name, 128) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
