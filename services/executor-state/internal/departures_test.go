package internal

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
)

// departed is a leader that keeps what it is told.
type departed struct {
	controlv1.AgentsClient
	told chan *controlv1.DepartRequest
}

func (d departed) Depart(_ context.Context, req *controlv1.DepartRequest, _ ...grpc.CallOption) (*controlv1.DepartAnswer, error) {
	d.told <- req
	return &controlv1.DepartAnswer{}, nil
}

// Only an address that refuses twice in a row proves that an agent is dead.
func TestOnlyRefusalsProveAnAgentDead(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNRESET)}
	timeout := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		answers []error // nil accepts; the last one is given for ever
		dead    bool
	}{
		"it refuses":                        {[]error{refused}, true},
		"it accepts":                        {[]error{nil}, false},
		"it accepts while it dies":          {[]error{nil, nil, refused}, true},
		"it ends what it has yet to accept": {[]error{reset, nil, refused}, true},
		"it resets for ever":                {[]error{reset}, false},
		"it refuses once, and is replaced":  {[]error{refused, nil}, false},
		"silence":                           {[]error{timeout}, false},
		"it refuses once, then silence":     {[]error{refused, timeout}, false},
		"no way there":                      {[]error{errors.New("no route to host")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := departed{told: make(chan *controlv1.DepartRequest, 1)}
				dials := 0
				d := &Departures{leader: leader, log: slog.New(slog.DiscardHandler), waiting: make(chan departure, 1)}
				d.dial = func(context.Context, string, string) (net.Conn, error) {
					err := c.answers[min(dials, len(c.answers)-1)]
					if dials++; err != nil {
						return nil, err
					}
					here, there := net.Pipe()
					there.Close()
					return here, nil
				}
				d.look(t.Context(), departure{id: "h1", address: "h1:7200", incarnation: 12, lease: 7})
				select {
				case req := <-leader.told:
					if !c.dead || req.GetId() != "h1" || req.GetIncarnation() != 12 || req.GetEtcdLease() != 7 {
						t.Errorf("the leader was told %v", req)
					}
				default:
					if c.dead {
						t.Error("the leader was told nothing")
					}
				}
			})
		})
	}
}
