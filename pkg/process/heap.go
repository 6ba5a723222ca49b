package process

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// Floor is the minimum amount of garbage, in bytes, that triggers a collection.
type Floor int

const (
	// FloorService is for a process that has its memory to itself.
	FloorService Floor = 64 << 20
	// FloorAgent is for a process on a host whose memory belongs to workers.
	FloorAgent Floor = 8 << 20
)

// floor is never written, so it uses address space but no memory.
var floor []byte

// FloorHeap makes a process with little state collect garbage less often. Go collects
// garbage whenever the heap has doubled. Under load a heap of a few megabytes doubles
// many times a second, and each collection scans all stacks. With FloorHeap the process
// uses up to the size of the floor more memory instead. A later call replaces the floor of an
// earlier one. If GOGC or GOMEMLIMIT is set, FloorHeap does nothing.
func FloorHeap(size Floor) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	earlier := len(floor)
	floor = make([]byte, size)
	// The runtime writes zeros to memory that it has used before, which makes it resident. A failure
	// costs memory and nothing else.
	_ = unix.Madvise(floor, unix.MADV_DONTNEED)
	if earlier > 0 {
		runtime.GC() // the next collection would come only after as much garbage as the earlier floor
	}
	runtime.KeepAlive(floor)
}

const (
	// heapBound is the minimum memory limit that BoundHeap sets. It is the expected maximum
	// of a process with little state, including the memory of FloorHeap.
	heapBound = 448 << 20
	// boundEvery is the interval at which BoundHeap adjusts the limit. A flood of
	// connections uses about 50 MiB more each second.
	boundEvery = time.Second / 8
)

// Large is the amount of memory in use, in bytes, above which BoundHeap assumes a large
// fleet and not a flood of connections.
type Large int64

const (
	// LargeGateway is far more memory than unauthenticated clients can make a gateway use.
	// Only the gateway of a large fleet exceeds it, and such a gateway must not collect
	// garbage all the time. In a measured flood the gateway used 647 MiB with 480 MiB here,
	// and 486 MiB with this value.
	LargeGateway Large = 768 << 20
	// LargeAlways is for a process to which unauthenticated clients cannot connect.
	LargeAlways Large = 0
)

// BoundHeap makes a process that uses about 400 MiB or more collect garbage before its
// memory has doubled. Otherwise the garbage of a flood of connections would use as much
// memory as the live objects. BoundHeap adjusts the memory limit to the memory in use, so
// that a process with much state does not collect all the time. Garbage may use half of
// the memory in use if that is above large, and a sixteenth otherwise. BoundHeap returns
// when ctx ends. If GOGC or GOMEMLIMIT is set, it does nothing. Call it once, from the
// main function, because the limit applies to the whole process.
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

// bound returns the memory limit of a process with the given amount of memory in use.
// With less space for garbage, collections would follow each other without a pause, and
// every goroutine that allocates would help to scan all stacks.
func (large Large) bound(inUse int64) int64 {
	garbage := inUse / 16
	if inUse > int64(large) {
		garbage = inUse / 2
	}
	return max(heapBound, inUse+garbage)
}

// inUse returns the amount of memory that counts towards the limit and that a collection
// does not free. This is the live objects at the last collection and all memory outside
// of objects. With 20,000 streams, stacks and free space in spans use as much memory as
// the objects.
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
