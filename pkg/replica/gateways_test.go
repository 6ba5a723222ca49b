package replica

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/process"
	"berth.dev/testkit/porttest"
)

// A replica says which gateways do not answer it and why, and that another listener of a gateway
// answers.
func TestGatewaysThatDoNotAnswerAreNamed(t *testing.T) {
	unused := porttest.Hold(t)
	serve := func(listener string) (address string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := rpc.NewServer(rpc.ServerOptions{})
		server.SetServing(listener, false) // its leader is missing
		var served sync.WaitGroup
		served.Go(func() { server.Serve(l) })
		t.Cleanup(func() { server.Stop(); served.Wait() })
		return l.Addr().String()
	}
	public, internal := serve("berth.v1.Reservations"), serve(controlv1.Inventory_ServiceDesc.ServiceName)
	for _, c := range []struct {
		gateways []string
		want     string
	}{
		{[]string{unused}, "no gateway answers: " + unused + " (connection refused)"},
		{[]string{public, unused}, "no gateway answers: " + public + " (it is not an address of --internal-listen), " + unused +
			" (connection refused)"},
		{[]string{unused, internal}, ""},
		{[]string{internal, public}, ""},
	} {
		conn, err := rpc.Dial(c.gateways, rpc.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secured, err := process.Security{}.Secure("default", 0, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		of := &Replica{Gateway: conn, secured: secured}
		of.Config.Gateways = c.gateways
		g := &gateways{check: of.checkGateways}
		log, ended := &lockedBuffer{}, make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			g.watch(ctx, slog.New(slog.NewTextHandler(log, nil))) //nolint:errcheck // it returns nil
		}()
		if c.want == "" {
			// The first check has passed, or a later one may.
			for deadline := time.Now().Add(time.Minute); of.checkGateways(ctx) != nil; {
				if time.Now().After(deadline) {
					t.Errorf("%q: no gateway answers", c.gateways)
					break
				}
			}
		} else {
			for deadline := time.Now().Add(time.Minute); g.lacks() != c.want ||
				!strings.Contains(log.String(), c.want); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("%q: it lacks %q, want %q; log: %s", c.gateways, g.lacks(), c.want, log)
					break
				}
			}
		}
		stop()
		<-ended
		conn.Close()
		secured.Close()
	}
}
