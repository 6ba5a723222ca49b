package command

import (
	"context"
	"log/slog"
	"net"

	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
)

// Serve opens a host and runs the agents that add adds to the host. add gets the address to
// which the host is bound, and returns the agent whose health is the health of the process;
// nil without one. Serve returns after the process is stopped or an agent fails. The name
// identifies the process in traces.
func Serve(ctx context.Context, common process.Common, name string, gateways []string, stopWorkers bool,
	log *slog.Logger, add func(h *host.Host, bound net.Addr) (*agent.Agent, error)) error {
	// The cluster is the one in the certificate.
	secured, err := common.Security.Secure("", identity.Agent, log)
	if err != nil {
		return err
	}
	defer secured.Close()
	traces, err := common.Trace(ctx, "agent", name, secured.External(common.Tracing.OTLPEndpoint), log, nil)
	if err != nil {
		return err
	}
	ports, err := common.Open(log)
	if err != nil {
		traces.Close()
		return err
	}
	// The agents keep their streams until Close has stopped their workers and reported the ends.
	h := host.Open(context.WithoutCancel(ctx), ports.Calls, gateways, secured, traces, log)
	a, err := add(h, ports.Calls.Addr())
	if err == nil && a != nil && ports.HTTP != nil {
		err = h.Operate(ports.HTTP, a, common.Pprof)
	}
	if err == nil {
		err = common.Announce(log, ports, nil)
	}
	if err == nil && a != nil {
		h.Watch(a)
	}
	if err != nil {
		h.Close(false, common.StopTimeout)
		ports.Close()
		return err
	}
	select {
	case <-ctx.Done():
	case <-h.Stopping():
	}
	return h.Close(stopWorkers, common.StopTimeout)
}
