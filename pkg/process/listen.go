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
)

// Addresses are where a process listens, with the ports it was given.
type Addresses struct {
	// Listen serves calls.
	Listen string `json:"listen"`
	// HTTP serves health and metrics; it may be the same.
	HTTP string `json:"http"`
	// Agents and Internal are the further listeners of a gateway: of agents, and of
	// the services. Other processes have none.
	Agents   string `json:"agents,omitempty"`
	Internal string `json:"internal,omitempty"`
}

// Listeners are the open ports of a process. Until something serves on them,
// who connects waits and is not refused.
type Listeners struct {
	Calls net.Listener
	// HTTP is nil when no address was configured for it.
	HTTP net.Listener
	// Agents and Internal are nil except in a gateway, which opens them with
	// OpenCalls.
	Agents, Internal net.Listener
}

// Open opens the ports of a process. An address without a host means loopback.
// The operations port never has TLS, so beyond loopback it needs Insecure
// whatever the port for calls does.
func (c Common) Open(log *slog.Logger) (*Listeners, error) {
	calls, err := c.OpenCalls(log, "--listen", c.Listen)
	if err != nil {
		return nil, err
	}
	l := &Listeners{Calls: calls}
	if c.HTTPListen != "" {
		if l.HTTP, err = c.open(log, "--http-listen", c.HTTPListen, false); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// OpenCalls opens one port for calls, under the rules of Open: the address that an
// option has, by the name of its flag.
func (c Common) OpenCalls(log *slog.Logger, flag, address string) (net.Listener, error) {
	return c.open(log, flag, address, c.TLSCert != "")
}

// Close closes the ports; closing twice does no harm.
func (l *Listeners) Close() {
	for _, port := range []net.Listener{l.Calls, l.HTTP, l.Agents, l.Internal} {
		if port != nil {
			port.Close()
		}
	}
}

// Announce tells the log, the address file if there is one, and the callback
// if there is one, where the process listens.
func (c Common) Announce(log *slog.Logger, l *Listeners, told func(Addresses)) error {
	bound := Addresses{Listen: l.Calls.Addr().String(), HTTP: l.Calls.Addr().String()}
	if l.HTTP != nil {
		bound.HTTP = l.HTTP.Addr().String()
	}
	attrs := []any{"listen", bound.Listen, "http", bound.HTTP}
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
			return fault.New(fault.Precondition, fault.ReasonInvalid, "--address-file %s cannot be written", c.AddressFile).Because(err)
		}
	}
	if told != nil {
		told(bound)
	}
	return nil
}

// writeAddresses puts the file in place whole, so that a parent which waits
// for it never reads half of it.
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

func (c Common) open(log *slog.Logger, flag, address string, secured bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, badConfig(err, "%s %q is not host:port", flag, address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if !loopback(host) && !secured {
		if !c.Insecure {
			return nil, badConfig(nil, "%s %s is open to the network without TLS: add --insecure if that is meant", flag, address)
		}
		log.Warn("listening beyond loopback without TLS", "flag", flag, "address", address)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		why := fmt.Sprintf("%s %s cannot be listened on", flag, address)
		if errors.Is(err, syscall.EADDRINUSE) {
			why = fmt.Sprintf("%s %s is in use by another process", flag, address)
		}
		return nil, fault.New(fault.Precondition, fault.ReasonInvalid, "%s", why).Because(err)
	}
	return l, nil
}

// Instance is where others reach what is bound at an address: the one that is
// advertised, if any. One that is bound to every address of its host has to
// advertise one of them.
func Instance(advertise string, bound net.Addr) (string, error) {
	if advertise != "" {
		if host, port, err := net.SplitHostPort(advertise); err != nil || host == "" || port == "" || port == "0" {
			return "", badConfig(err, "--advertise %q is not host:port", advertise)
		}
		return advertise, nil
	}
	if tcp, ok := bound.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return "", badConfig(nil, "--listen %s is every address of this host: --advertise has to say which one others reach", bound)
	}
	return bound.String(), nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
