package port_test

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"

	"berth.dev/pkg/process/port"
)

// A process that names the reserved port can listen on it, repeatedly, but only once at a
// time.
func TestNamedPortCanBeListenedOn(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "::1"} {
		t.Run(host, func(t *testing.T) {
			held, err := port.Hold(host)
			if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
				t.Skipf("this machine has no %s", host)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer held.Release()
			for range 3 {
				l, err := net.Listen("tcp", held.Address())
				if err != nil {
					t.Fatal(err)
				}
				if second, err := net.Listen("tcp", held.Address()); !errors.Is(err, syscall.EADDRINUSE) {
					t.Fatalf("a second listener: %v, %v", second, err)
				}
				c, err := net.Dial("tcp", held.Address())
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
				l.Close()
				if c, err := net.Dial("tcp", held.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Fatalf("dial without a listener: %v, %v", c, err)
				}
			}
		})
	}
}

// A fleet requests many more ports from the kernel when it starts. None of the assigned
// ports is a reserved port.
func TestReservedPortIsNotAssigned(t *testing.T) {
	held := map[string]bool{}
	for range 500 {
		h, err := port.Hold("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release()
		if held[h.Address()] {
			t.Fatalf("%s was reserved twice", h.Address())
		}
		held[h.Address()] = true
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	defer accepting.Wait()
	defer server.Close()
	for range 4000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		c, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		for _, given := range []string{l.Addr().String(), c.LocalAddr().String()} {
			if held[given] {
				t.Fatalf("the kernel assigned %s, which is reserved", given)
			}
		}
	}
}
