package process

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// heapFloor is how much garbage a process may gather at least before it looks
// for some.
const heapFloor = 64 << 20

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

const (
	// heapBound is what a process of little state is expected to need at most,
	// the floor of FloorHeap included.
	heapBound = 448 << 20
	// boundEvery is how often BoundHeap looks. A flood fills some 50 MiB a second.
	boundEvery = time.Second / 8
)

// Large is for BoundHeap: more memory in use than that is a large fleet and no flood.
type Large int64

const (
	// LargeGateway is far more than strangers can make a gateway hold: beyond it are
	// large fleets, which must not collect garbage without end. With 480 MiB here a
	// flood took 647 MiB, and 486 MiB with this.
	LargeGateway Large = 768 << 20
	// LargeAlways is for a process that strangers do not reach.
	LargeAlways Large = 0
)

// BoundHeap makes a process collect garbage before its memory has doubled, once it
// takes some 400 MiB: a flood of connections must not take as much again for what
// it leaves behind. The bound follows what is really in use, so that a process with
// much state does not collect without end: garbage may take half as much where more
// than large is in use, and a sixteenth below. It returns when ctx ends. If GOGC or
// GOMEMLIMIT is set, it leaves that alone. It is for the main function of a process,
// which has one limit.
func BoundHeap(ctx context.Context, large Large) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	tick := time.NewTicker(boundEvery)
	defer tick.Stop()
	for {
		debug.SetMemoryLimit(large.bound(kept()))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// bound is the limit of memory for a process of which collection leaves so much. It
// leaves room for garbage: with less, one collection follows the other, and every
// goroutine that allocates helps to look through all stacks.
func (large Large) bound(kept int64) int64 {
	room := kept / 16
	if kept > int64(large) {
		room = kept / 2
	}
	return max(heapBound, kept+room)
}

// kept is the memory that counts towards the limit and that collecting does not
// free: what lived at the last collection, and all that is no object. Stacks that
// have grown, and what is left over in spans, are as much as the objects when there
// are 20,000 streams.
func kept() int64 {
	const classes = "/memory/classes/"
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: classes + "total:bytes"},
		{Name: classes + "heap/objects:bytes"}, {Name: classes + "heap/free:bytes"}, {Name: classes + "heap/released:bytes"},
	}
	metrics.Read(samples)
	bytes := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return bytes(0) + bytes(1) - bytes(2) - bytes(3) - bytes(4)
}
