package dev

import "testing"

func TestDevBoundsItsHistory(t *testing.T) {
	if !(Config{}).cluster(security{}).Bounded {
		t.Error("berth dev starts a cluster that is not bounded")
	}
}
