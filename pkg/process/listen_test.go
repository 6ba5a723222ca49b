package process_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
)

var quiet = slog.New(slog.DiscardHandler)

func TestPortZeroIsReported(t *testing.T) {
	c := process.Common{Listen: ":0", HTTPListen: "localhost:0", AddressFile: filepath.Join(t.TempDir(), "addresses")}
	l, err := c.Open(quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var told process.Addresses
	if err := c.Announce(quiet, l, func(a process.Addresses) { told = a }); err != nil {
		t.Fatal(err)
	}
	var filed process.Addresses
	text, err := os.ReadFile(c.AddressFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &filed); err != nil || filed != told {
		t.Errorf("file %s, callback %v", text, told)
	}
	for _, address := range []string{told.Listen, told.HTTP} {
		// An address without a host listens on loopback, and not on every interface.
		if host, port, _ := net.SplitHostPort(address); host != "127.0.0.1" || port == "0" {
			t.Errorf("listens on %s", address)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Errorf("%s cannot be connected to: %v", address, err)
			continue
		}
		conn.Close()
	}
}

func TestOnePortServesBothOnRequest(t *testing.T) {
	c := process.Common{Listen: ":0"}
	l, err := c.Open(quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var told process.Addresses
	if err := c.Announce(quiet, l, func(a process.Addresses) { told = a }); err != nil || told.HTTP != "" {
		t.Errorf("a process without health and metrics: callback got %v, %v", told, err)
	}
	if l.Agents, err = c.OpenCalls(quiet, "--agents-listen", ":0"); err != nil {
		t.Fatal(err)
	}
	if err := c.Announce(quiet, l, func(a process.Addresses) { told = a }); err != nil || told.Listen != told.HTTP {
		t.Errorf("a gateway: callback got %v, %v", told, err)
	}
}

func TestABusyPortIsNamedWithItsFlag(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for flag, c := range map[string]process.Common{
		"--listen":      {Listen: busy.Addr().String(), HTTPListen: ":0"},
		"--http-listen": {Listen: ":0", HTTPListen: busy.Addr().String()},
	} {
		_, err := c.Open(quiet)
		if err == nil || !strings.HasPrefix(err.Error(), flag+" "+busy.Addr().String()+" is in use") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestBeyondLoopbackNeedsTLSOrInsecure(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0", "no-such-host.invalid:0"} {
		_, err := process.Common{Listen: address}.Open(quiet)
		if fault.Of(err).Kind != fault.Invalid || !strings.Contains(err.Error(), "--insecure") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, mode := range []string{"allow", "prefer"} {
		secured := process.Security{TLSCert: "c", TLSMode: mode}
		if _, err := (process.Common{Listen: "0.0.0.0:0", Security: secured}).Open(quiet); err == nil {
			t.Errorf("mode %s: open to connections in plain text without --insecure", mode)
		}
	}
	var log bytes.Buffer
	l, err := process.Common{Listen: "0.0.0.0:0",
		Security: process.Security{Insecure: true}}.Open(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if !strings.Contains(log.String(), "level=WARN") {
		t.Error("nothing warns")
	}
}

func TestInvalidAddressIsRejected(t *testing.T) {
	if _, err := (process.Common{Listen: "8080"}).Open(quiet); fault.Of(err).Kind != fault.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestInstance(t *testing.T) {
	for _, c := range []struct{ advertise, bound, want string }{
		{"", "10.0.0.7:7101", "10.0.0.7:7101"},
		{"", "[::1]:7101", "[::1]:7101"},
		{"registry-0.registry:7101", "0.0.0.0:7101", "registry-0.registry:7101"},
		{"", "0.0.0.0:7101", ""},
		{"", "[::]:7101", ""},
		{"registry-0", "10.0.0.7:7101", ""},
		{":7101", "10.0.0.7:7101", ""},
		{"registry-0:0", "10.0.0.7:7101", ""},
		{"0.0.0.0:7101", "10.0.0.7:7101", ""},
		{"[::]:7101", "10.0.0.7:7101", ""},
		{"[::%eth0]:7101", "10.0.0.7:7101", ""},
	} {
		got, err := process.Instance(c.advertise, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.bound)))
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), "--advertise") {
			t.Errorf("%q bound to %s: %q, %v", c.advertise, c.bound, got, err)
		}
	}
}
