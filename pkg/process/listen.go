package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// Addresses has the addresses at which a process listens.
type Addresses struct {
	// Listen is the address for calls.
	Listen string `json:"listen"`
	// HTTP is the address for health and metrics; empty if the process serves neither. It may
	// be equal to Listen.
	HTTP string `json:"http,omitempty"`
	// Agents and Internal are the gateway's addresses for agents and for services. They are
	// empty for other processes.
	Agents   string `json:"agents,omitempty"`
	Internal string `json:"internal,omitempty"`
}

// Listeners has the open ports of a process. Until a server accepts connections, the
// kernel queues them instead of refusing them.
type Listeners struct {
	Calls net.Listener
	// HTTP is nil if no address is configured for it.
	HTTP net.Listener
	// Agents and Internal are nil except in a gateway, which opens them with OpenCalls.
	Agents, Internal net.Listener
}

// Open opens the ports of a process. An address without a host means loopback. Beyond
// loopback, a port that accepts connections in plain text needs Insecure.
func (c Common) Open(log *slog.Logger) (*Listeners, error) {
	calls, err := c.OpenCalls(log, "--listen", c.Listen)
	if err != nil {
		return nil, err
	}
	l := &Listeners{Calls: calls}
	if c.HTTPListen != "" {
		if l.HTTP, err = c.OpenCalls(log, "--http-listen", c.HTTPListen); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// OpenCalls opens one port, by the rules of Open. flag is the option that sets the address.
func (c Common) OpenCalls(log *slog.Logger, flag, address string) (net.Listener, error) {
	return c.open(log, flag, address, c.encrypted())
}

// Close closes the ports. It may be called more than once.
func (l *Listeners) Close() {
	for _, port := range []net.Listener{l.Calls, l.HTTP, l.Agents, l.Internal} {
		if port != nil {
			port.Close()
		}
	}
}

// Announce writes the bound addresses to the log and, if configured, to the address file.
// If report is not nil, it calls report with the addresses.
func (c Common) Announce(log *slog.Logger, l *Listeners, report func(Addresses)) error {
	bound := Addresses{Listen: l.Calls.Addr().String()}
	attrs := []any{"listen", bound.Listen}
	switch {
	case l.HTTP != nil:
		bound.HTTP = l.HTTP.Addr().String()
	case l.Agents != nil: // a gateway serves health and metrics on the port of its calls
		bound.HTTP = bound.Listen
	}
	if bound.HTTP != "" {
		attrs = append(attrs, "http", bound.HTTP)
	}
	if l.Agents != nil {
		bound.Agents = l.Agents.Addr().String()
		attrs = append(attrs, "agents", bound.Agents)
	}
	if l.Internal != nil {
		bound.Internal = l.Internal.Addr().String()
		attrs = append(attrs, "internal", bound.Internal)
	}
	log.Info("listening", attrs...)
	if c.AddressFile != "" {
		if err := writeAddresses(c.AddressFile, bound); err != nil {
			return fault.New(fault.Precondition, fault.ReasonInvalid, "--address-file: cannot write %s",
				c.AddressFile).Because(err)
		}
	}
	if report != nil {
		report(bound)
	}
	return nil
}

// writeAddresses replaces the file atomically, so that a parent that polls the file never
// reads an incomplete one.
func writeAddresses(name string, bound Addresses) error {
	text, err := json.Marshal(bound)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".addresses-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// CheckListen returns an error if the process must not listen at an address, by the rules of Open.
// flag is the option that sets the address. An empty address is accepted.
func (c Common) CheckListen(flag, address string) error {
	return c.checkListen(flag, address, c.encrypted())
}

func (c Common) checkListen(flag, address string, secured bool) error {
	if address == "" {
		return nil
	}
	if problem := rpc.CheckListenAddress(address); problem != "" {
		return fault.BadField(fault.ReasonInvalid, flag, "%s, got %q", problem, address)
	}
	host, _, _ := net.SplitHostPort(address) // it is valid
	if host != "" && !rpc.Loopback(host) && !secured && !c.Insecure {
		return badCombination(flag, "%s %s is open to the network without TLS: configure TLS or add --insecure", flag, address)
	}
	return nil
}

func (c Common) open(log *slog.Logger, flag, address string, secured bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, badConfig(err, "%s: must be host:port, got %q", flag, address)
	}
	if err := c.checkListen(flag, address, secured); err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if !rpc.Loopback(host) && !secured {
		log.Warn("listening beyond loopback without TLS", "flag", flag, "address", address)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, CannotListen(flag, address, err)
	}
	return l, nil
}

// CannotListen returns the error of a process that cannot listen at an address. flag is the option
// that sets the address.
func CannotListen(flag, address string, err error) error {
	why := fmt.Sprintf("%s: cannot listen on %s", flag, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		why = fmt.Sprintf("%s %s is in use by another process", flag, address)
	}
	return fault.New(fault.Precondition, fault.ReasonInvalid, "%s", why).Because(err)
}

// MakeDir creates the directory that an option names, unless it exists. flag is the option.
func MakeDir(flag, dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s %s cannot be created", flag, dir).Because(err)
	}
	return nil
}

// Instance returns the address at which other processes reach this process: the
// advertised address, or else the bound address. A process that listens on all addresses
// of its host must advertise one of them.
func Instance(advertise string, bound net.Addr) (string, error) {
	if advertise != "" {
		if problem := checkAdvertise(advertise); problem != "" {
			return "", fault.BadField(fault.ReasonInvalid, "--advertise", "%s, got %q", problem, advertise)
		}
		return advertise, nil
	}
	if tcp, ok := bound.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return "", badConfig(nil, "--listen %s is every address of this host: set --advertise to the address that other processes reach", bound)
	}
	return bound.String(), nil
}
