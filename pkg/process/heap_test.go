package process

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// The memory limit leaves free memory above the live heap. The live heap does not include
// garbage.
func TestBoundFollowsTheLiveHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const size = 32 << 20
	runtime.GC()
	before := inUse()
	held := make([]byte, size)
	runtime.GC()
	with := inUse()
	runtime.KeepAlive(held)
	held = make([]byte, size) // garbage that is not collected yet
	if after := inUse(); with-before < size/2 || after-with > size/2 {
		t.Errorf("%d bytes are kept, %d with %d more, %d with as much garbage", before, with, size, after)
	}
	runtime.KeepAlive(held)
	for _, c := range []struct {
		large Large
		kept  int64
		part  int64 // the garbage may use at least 1/part of the memory in use
	}{
		{LargeGateway, heapBound, 16}, {LargeGateway, 480 << 20, 16}, {LargeGateway, int64(LargeGateway), 16},
		{LargeGateway, int64(LargeGateway) + 1, 2},
		{LargeAlways, heapBound / 2, 2}, {LargeAlways, heapBound, 2}, {LargeAlways, 600 << 20, 2}, {LargeAlways, 2 << 30, 2},
	} {
		if room := c.large.bound(c.kept) - c.kept; room < c.kept/c.part {
			t.Errorf("large = %d: with %d bytes in use the bound leaves %d free", c.large, c.kept, room)
		}
	}
	for _, large := range []Large{LargeGateway, LargeAlways} {
		if b := large.bound(heapBound / 2); b != heapBound {
			t.Errorf("large is %d: the bound of a small process is %d", large, b)
		}
	}
}
