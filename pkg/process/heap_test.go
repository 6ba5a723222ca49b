package process

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// The floor uses no memory, also if the runtime takes it from memory that was used before.
func TestFloorUsesNoMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	defer func() { floor = nil }()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	used := make([]byte, 2*FloorService)
	for i := range used {
		used[i] = 1
	}
	before := resident(t)
	used = nil
	runtime.GC()
	for _, size := range []Floor{FloorService, FloorAgent} {
		FloorHeap(size)
		if len(floor) != int(size) {
			t.Fatalf("the floor has %d bytes", len(floor))
		}
	}
	FloorHeap(FloorService)
	if left := before - resident(t); left < int64(FloorService)/2 {
		t.Errorf("only %d bytes of the memory under the floor were returned", left)
	}
	t.Setenv("GOGC", "100")
	floor = nil
	if FloorHeap(FloorService); floor != nil {
		t.Error("the environment does not take precedence")
	}
}

// resident returns the bytes of memory that the process uses.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("the test reads /proc")
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

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
