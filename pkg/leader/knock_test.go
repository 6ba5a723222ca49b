package leader

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"berth.dev/pkg/process/port/porttest"
)

// Who listens accepts, who does not refuses, by either family; and nobody is waited for
// longer than was said.
func TestKnock(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
			if err != nil {
				t.Skipf("this machine has no %s: %v", host, err)
			}
			defer l.Close()
			if err := knock(netip.MustParseAddrPort(l.Addr().String()), time.Minute); err != nil {
				t.Errorf("while it listens: %v", err)
			}
		})
	}
	if err := knock(netip.MustParseAddrPort(porttest.Hold(t)), time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("where nobody listens: %v", err)
	}
	full := fullListener(t)
	if err := knock(full, knockFor); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("where nobody answers: %v", err)
	}
}

// fullListener is one that answers nobody any more, as a frozen process does.
func fullListener(t *testing.T) netip.AddrPort {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port))
	for range 8 { // its queue takes one or two, and keeps who has hung up
		if knock(at, 50*time.Millisecond) != nil {
			return at
		}
	}
	t.Fatal("a listener of which nobody accepts takes any number")
	return at
}
