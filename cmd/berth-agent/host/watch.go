package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/transport"
)

const (
	// notReadyAfter is how long a new agent may be not ready before the log says why. Together
	// with checkTimeout it is less than two seconds.
	notReadyAfter = time.Second
	// lostAfter is the same time for an agent that was ready before. Agents spread their
	// reconnects over a fifth of the heartbeat interval, which by default is one second.
	lostAfter = 5 * time.Second
	// checkTimeout bounds the check of a gateway.
	checkTimeout = 800 * time.Millisecond
	// repeatAfter is the time between two log lines while an agent stays not ready.
	repeatAfter = 30 * time.Second
)

// Watch logs why an agent of the host is not ready, with the state of each gateway, until
// Close. It repeats the line while the agent stays not ready. When the agent is ready for the
// first time, it notifies the service manager.
func (h *Host) Watch(a *agent.Agent) {
	ctx, stop := context.WithCancel(h.group.Context())
	h.endWatch = stop
	h.group.Go("readiness", func(context.Context) error {
		notify := sync.OnceFunc(func() { process.NotifyReady(h.log) })
		reported, patience := false, notReadyAfter
		for ctx.Err() == nil {
			waiting, cancel := context.WithTimeout(ctx, patience)
			err := a.AwaitReady(waiting)
			cancel()
			switch {
			case ctx.Err() != nil:
			case err == nil:
				notify()
				if reported {
					h.log.Info("ready: the control plane answers")
				}
				reported, patience = false, lostAfter
				awaitNotReady(ctx, a)
			default:
				// The checks take a moment, in which the agent may have become ready.
				states := h.checkGateways(ctx)
				if reason := a.Ready(); reason != nil && ctx.Err() == nil {
					h.log.Warn("not ready", "reason", fault.Of(reason).Message, "gateways", states)
					reported, patience = true, repeatAfter
				}
			}
		}
		return nil
	})
}

// awaitNotReady waits until the agent is not ready, or until ctx ends.
func awaitNotReady(ctx context.Context, a *agent.Agent) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for a.Ready() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// checkGateways connects to each gateway and returns the results as a text.
func (h *Host) checkGateways(ctx context.Context) string {
	states := make([]string, len(h.gateways))
	var all sync.WaitGroup
	for i, address := range h.gateways {
		all.Go(func() {
			checking, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			states[i] = address + ": " + checkGateway(checking, address, h.secured.Client(identity.Gateway))
		})
	}
	all.Wait()
	return strings.Join(states, "; ")
}

// checkGateway connects to an address and returns what happens, for people: it resolves the
// name, connects, encrypts the connection if config is set, and calls the health check that
// every listener of a gateway serves.
func checkGateway(ctx context.Context, address string, config *tls.Config) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return dialReason(err)
	}
	defer conn.Close()
	if config != nil {
		config := config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address) // the address was dialed, so it is valid
		config.NextProtos = []string{"h2"}
		secured := tls.Client(conn, config)
		var plain tls.RecordHeaderError
		switch err := secured.HandshakeContext(ctx); {
		case errors.As(err, &plain), errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return "the listener does not answer a TLS handshake; if it has no TLS, remove --tls-cert"
		case err != nil:
			return "TLS: " + transport.Reason(err)
		}
	}
	client, err := rpc.Dial([]string{address}, rpc.DialOptions{TLS: config, FailFast: true})
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	_, err = healthpb.NewHealthClient(client).Check(ctx, &healthpb.HealthCheckRequest{})
	switch code := status.Code(err); {
	case code != codes.Unavailable && code != codes.DeadlineExceeded:
		return "reachable"
	case config == nil:
		return "it does not answer a call in plain text; if it requires TLS, set --tls-cert, --tls-key and --tls-ca"
	}
	return "it does not answer a call; it may have rejected the certificate of this process, and its log says why"
}

// dialReason describes why no connection was made, for people.
func dialReason(err error) string {
	var name *net.DNSError
	var timeout net.Error
	var system syscall.Errno
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("the name %q was not found", name.Name)
	case errors.As(err, &name):
		return fmt.Sprintf("the name %q cannot be resolved: %s", name.Name, cmp.Or(name.Err, "timed out"))
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused; no process listens there"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "connection timed out; a firewall may drop the packets"
	case errors.As(err, &system):
		return system.Error()
	}
	return err.Error()
}
