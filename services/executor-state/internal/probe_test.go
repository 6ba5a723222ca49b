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

// departed is a leader that records which agents are reported as departed.
type departed struct {
	controlv1.AgentsClient
	reports chan *controlv1.DepartRequest
}

func (d departed) Depart(_ context.Context, req *controlv1.DepartRequest,
	_ ...grpc.CallOption) (*controlv1.DepartAnswer, error) {
	d.reports <- req
	return &controlv1.DepartAnswer{}, nil
}

// An agent is proven dead only if its address refuses connections twice in a row.
func TestOnlyRefusalsProveAnAgentDead(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNRESET)}
	timeout := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		answers []error // nil accepts; the last answer repeats forever
		dead    bool
	}{
		"it refuses":                   {[]error{refused}, true},
		"it accepts":                   {[]error{nil}, false},
		"accepts while it dies":        {[]error{nil, nil, refused}, true},
		"resets pending connections":   {[]error{reset, nil, refused}, true},
		"resets forever":               {[]error{reset}, false},
		"refuses once, then accepts":   {[]error{refused, nil}, false},
		"no answer":                    {[]error{timeout}, false},
		"refuses once, then no answer": {[]error{refused, timeout}, false},
		"no route":                     {[]error{errors.New("no route to host")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := departed{reports: make(chan *controlv1.DepartRequest, 1)}
				dials := 0
				d := &Prober{leader: leader, log: slog.New(slog.DiscardHandler), queue: make(chan brokenStream, 1)}
				d.dial = func(context.Context, string, string) (net.Conn, error) {
					err := c.answers[min(dials, len(c.answers)-1)]
					if dials++; err != nil {
						return nil, err
					}
					here, there := net.Pipe()
					there.Close()
					return here, nil
				}
				d.probe(t.Context(), brokenStream{id: "h1", address: "h1:7200", incarnation: 12, lease: 7})
				select {
				case req := <-leader.reports:
					if !c.dead || req.GetId() != "h1" || req.GetIncarnation() != 12 || req.GetEtcdLease() != 7 {
						t.Errorf("the leader received %v", req)
					}
				default:
					if c.dead {
						t.Error("the leader received no report")
					}
				}
			})
		})
	}
}
