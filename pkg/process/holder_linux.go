//go:build amd64 || arm64

package process

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HoldMemory starts a process that shares this one's memory and does nothing, until
// let go is called or this process ends, however it does. What is given up of it does
// not matter for anything but time.
//
// The kernel gives back the memory of a process that is killed before it closes its
// files, 11 ms of a processor for 100 MB, and nobody can know before that it is dead.
// Memory that is shared goes with the last process that has it. The holder ends when
// the kernel closes the files of this one, which it sees by a pipe, and gives the memory
// back in its place, with whatever processor time nobody else wants.
//
// It has no file but that pipe, no signal reaches it but SIGKILL and SIGSTOP, it runs a
// few dozen instructions and none of Go's. Lists of processes show it as berth-memory,
// with memory that is not counted twice by anything that counts a container's. It is an
// error where the kernel is older than 5.9, or does not permit what it needs.
func HoldMemory() (letGo func(), err error) {
	// The holder has to close what it inherits, the other end of the pipe above all.
	// This closes nothing, and says whether it can.
	if err := unix.CloseRange(math.MaxInt32, math.MaxInt32, 0); err != nil {
		return nil, fmt.Errorf("close_range: %w", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("a pipe: %w", err)
	}
	defer unix.Close(pipe[0]) // the holder has its own
	stack, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		unix.Close(pipe[1])
		return nil, fmt.Errorf("a stack: %w", err)
	}
	// A thread's signals that are blocked are so in what it starts.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return nil, err
	}
	pid := startHolder(uintptr(unsafe.Pointer(&stack[len(stack)-holderFrame])), uintptr(pipe[0]))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return nil, err
	}
	if pid < 0 {
		unix.Close(pipe[1])
		return nil, fmt.Errorf("a process that shares memory: %w", unix.Errno(-pid))
	}
	return sync.OnceFunc(func() {
		unix.Close(pipe[1])
		_ = unix.Kill(pid, unix.SIGKILL) // should it be stopped, or not be given a processor
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		_ = unix.Munmap(stack)
	}), nil
}

// holderFrame is more than the holder needs of its stack: a byte to read to.
const holderFrame = 64

// startHolder starts the process, on a stack that ends there, with the end of a pipe
// that it waits for. It answers the process's id, or an error's number below 0.
//
//go:noescape
func startHolder(stack, pipe uintptr) (pid int)
