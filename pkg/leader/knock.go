package leader

import (
	"errors"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// knock connects to an address and hangs up. The thread waits for the answer by itself:
// on this host a refusal is there before connect returns, and from another it takes
// less than a millisecond, while a goroutine that parks for it is given a processor
// again when everybody else who lost the same process has had one.
func knock(at netip.AddrPort, atMost time.Duration) error {
	var to unix.Sockaddr
	family := unix.AF_INET
	switch ip := at.Addr().Unmap(); {
	case ip.Is4():
		to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: ip.As4()}
	case ip.Zone() == "":
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: ip.As16()}
	default:
		return errors.ErrUnsupported
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(atMost.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	return unix.Connect(fd, to)
}

// spin waits for a millisecond or two and lets other goroutines run, but does not
// sleep: on a busy machine it takes ten times as long until who slept is woken.
func spin(d time.Duration) {
	began, err := ticks()
	for now := began; err == nil && now-began < d; now, err = ticks() {
		runtime.Gosched()
	}
}

// ticks is a clock that no test stops.
func ticks() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}
