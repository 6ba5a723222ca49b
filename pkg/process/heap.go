package process

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// heapFloor is the minimum of garbage that triggers a collection.
const heapFloor = 64 << 20

// floor is never written, so it uses address space but no memory.
var floor []byte

// FloorHeap makes a process with little state collect garbage rarely. Go collects whenever the
// heap has doubled. Under load that is many times a second for a heap of a few megabytes, and
// each collection scans all stacks. Instead, the process uses up to 64 MiB more. If GOGC or
// GOMEMLIMIT is set, FloorHeap does nothing.
func FloorHeap() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		floor = make([]byte, heapFloor)
		runtime.KeepAlive(floor)
	}
}

const (
	// heapBound is the expected maximum of a process with little state, including the
	// floor of FloorHeap.
	heapBound = 448 << 20
	// boundEvery is the interval of BoundHeap. A flood fills some 50 MiB a second.
	boundEvery = time.Second / 8
)

// Large is the amount of memory in use above which BoundHeap assumes a large fleet, not a flood.
type Large int64

const (
	// LargeGateway is far more than unauthenticated clients can make a gateway use. Only
	// large fleets exceed it, and they must not collect garbage all the time. With 480 MiB
	// here a flood used 647 MiB, with this value 486 MiB.
	LargeGateway Large = 768 << 20
	// LargeAlways is for a process that unauthenticated clients cannot reach.
	LargeAlways Large = 0
)

// BoundHeap makes a process collect garbage before its memory has doubled, once it uses some
// 400 MiB. Otherwise the garbage of a flood of connections would use as much again. The limit
// follows the memory in use, so that a process with much state does not collect all the time:
// garbage may use half of that amount if it is above large, and a sixteenth otherwise. BoundHeap
// returns when ctx ends. If GOGC or GOMEMLIMIT is set, it does nothing. Call it once, from the
// main function: the limit is per process.
func BoundHeap(ctx context.Context, large Large) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	tick := time.NewTicker(boundEvery)
	defer tick.Stop()
	for {
		debug.SetMemoryLimit(large.bound(inUse()))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// bound returns the memory limit of a process that has so much memory in use. With less space for
// garbage, collections follow one another, and every allocating goroutine helps to scan all
// stacks.
func (large Large) bound(inUse int64) int64 {
	garbage := inUse / 16
	if inUse > int64(large) {
		garbage = inUse / 2
	}
	return max(heapBound, inUse+garbage)
}

// inUse returns the memory that counts towards the limit and that a collection does not free: the
// live objects at the last collection, and all memory outside of objects. With 20,000 streams,
// stacks and free space in spans are as large as the objects.
func inUse() int64 {
	const classes = "/memory/classes/"
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: classes + "total:bytes"},
		{Name: classes + "heap/objects:bytes"}, {Name: classes + "heap/free:bytes"}, {Name: classes + "heap/released:bytes"},
	}
	metrics.Read(samples)
	bytes := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return bytes(0) + bytes(1) - bytes(2) - bytes(3) - bytes(4)
}
