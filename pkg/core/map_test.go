package core_test

import (
	"maps"
	"testing"

	"berth.dev/pkg/core"
)

// Drop replaces a map only if the map becomes empty.
func TestDropReplacesAnEmptyMap(t *testing.T) {
	m := map[int]string{1: "a", 2: "b"}
	large := m
	core.Drop(&m, 1)
	if want := map[int]string{2: "b"}; !maps.Equal(m, want) || len(large) != 1 {
		t.Errorf("got %v, want %v in the same map", m, want)
	}
	core.Drop(&m, 2)
	m[3] = "c"
	if len(large) != 0 || len(m) != 1 {
		t.Errorf("the old map has %v, the new one %v", large, m)
	}
}
