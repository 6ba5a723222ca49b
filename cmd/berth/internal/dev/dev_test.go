package dev

import "testing"

func TestDevBoundsItsHistory(t *testing.T) {
	if !(Config{}).cluster().Bounded {
		t.Error("berth dev starts a cluster that is not bounded")
	}
}
