package process

import (
	"os"
	"runtime"
	"runtime/debug"
)

// heapFloor is how much garbage a process may gather at least before it looks
// for some.
const heapFloor = 64 << 20

// LimitHeap makes a process collect garbage more often once its memory reaches a
// limit in bytes, in place of letting the heap double. An environment that sets
// GOGC or GOMEMLIMIT decides otherwise.
func LimitHeap(limit int64) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

// floor is never touched, so that it takes addresses and no memory.
var floor []byte

// FloorHeap makes a process with little state collect garbage rarely. Go does so
// whenever the heap has doubled: one of a few megabytes, under load, many times
// a second, and each time it looks through all stacks. The process takes up to
// 64 MiB more instead. Who has set GOGC or GOMEMLIMIT has decided otherwise.
func FloorHeap() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		floor = make([]byte, heapFloor)
		runtime.KeepAlive(floor)
	}
}
