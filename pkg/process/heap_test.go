package process

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// The bound of memory leaves room above what is in use, and garbage is not in use.
func TestTheBoundFollowsWhatIsKept(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const size = 32 << 20
	runtime.GC()
	before := kept()
	held := make([]byte, size)
	runtime.GC()
	with := kept()
	runtime.KeepAlive(held)
	held = make([]byte, size) // not collected, but garbage soon
	if after := kept(); with-before < size/2 || after-with > size/2 {
		t.Errorf("%d bytes are kept, %d with %d more, %d with as much garbage", before, with, size, after)
	}
	runtime.KeepAlive(held)
	for _, kept := range []int64{heapBound, 480 << 20, largeHeap, largeHeap + 1} {
		if room := bound(kept) - kept; room < kept/16 {
			t.Errorf("with %d bytes in use the bound leaves room for %d", kept, room)
		}
	}
	if b := bound(heapBound / 2); b != heapBound {
		t.Errorf("the bound of a small process is %d", b)
	}
}
