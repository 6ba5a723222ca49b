// Package port reserves TCP ports, so that a server has a known address before it runs
// and while it is down.
//
// It promises that the kernel does not assign a reserved port to another process that
// requests any free port, neither to listen nor to dial from. A process that names the
// port can listen on it, repeatedly. While no process listens, the kernel refuses
// connections.
//
// This relies on Linux. The port of a socket that is bound but does not listen counts as
// in use. A second socket can still be bound to the port by number if it has
// SO_REUSEADDR, which Go sets for every listener.
package port

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// Held is a port that is reserved for one server.
type Held struct {
	address string
	socket  *os.File // bound, never listening
}

// Hold reserves a free port of a host. The host must be a name or an address of this
// machine.
func Hold(host string) (*Held, error) {
	ip, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return nil, err
	}
	family, name := socketAddress(ip.IP)
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	h := &Held{socket: os.NewFile(uintptr(fd), "port")}
	number, err := bind(fd, name)
	if err != nil {
		h.Release()
		return nil, err
	}
	h.address = net.JoinHostPort(host, fmt.Sprint(number))
	return h, nil
}

func socketAddress(ip net.IP) (family int, _ syscall.Sockaddr) {
	if four := ip.To4(); four != nil {
		return syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte(four)}
	}
	six := &syscall.SockaddrInet6{}
	copy(six.Addr[:], ip)
	return syscall.AF_INET6, six
}

// bind binds the socket to a port that the kernel chooses, and returns the port.
func bind(fd int, name syscall.Sockaddr) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, name); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch b := bound.(type) {
	case *syscall.SockaddrInet4:
		return b.Port, nil
	case *syscall.SockaddrInet6:
		return b.Port, nil
	}
	return 0, fmt.Errorf("unexpected socket address %T", bound)
}

// Address returns host:port, with the host that was passed to Hold.
func (h *Held) Address() string { return h.address }

// Release ends the reservation. A server that listens on the port is not affected.
func (h *Held) Release() {
	h.socket.Close() //nolint:errcheck // nothing was written to the socket
}
