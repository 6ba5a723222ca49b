package command

import (
	"context"
	"log/slog"
	"net"
	"time"

	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/process"
)

// service is a process of agents.
type service struct {
	common   process.Common
	name     string // for traces
	gateways []string
	log      *slog.Logger
	// add adds the agents to a host that listens on an address.
	add         func(h *host.Host, bound net.Addr) error
	stopWorkers bool
	stopTimeout time.Duration
}

// run runs the agents until the process is stopped or an agent fails.
func (s service) run(ctx context.Context) error {
	traces, err := s.common.Trace(ctx, "agent", s.name, nil, s.log, nil)
	if err != nil {
		return err
	}
	ports, err := s.common.Open(s.log)
	if err != nil {
		traces.Close()
		return err
	}
	h := host.Open(ctx, ports.Calls, s.gateways, traces, s.log)
	err = s.add(h, ports.Calls.Addr())
	if err == nil {
		err = s.common.Announce(s.log, ports, nil)
	}
	if err != nil {
		h.Close(false, s.stopTimeout)
		return err
	}
	<-h.Stopping()
	return h.Close(s.stopWorkers, s.stopTimeout)
}
