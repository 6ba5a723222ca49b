package play

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"berth.dev/api/rpc"
	"berth.dev/pkg/agent"
)

// silentHost is a host whose agent runs in this process, with simulated workers. Until answers is
// closed, no request is answered. Without Connects, nobody reads from the connections that the
// kernel accepts.
type silentHost struct {
	answers chan struct{}
	close   func() error
}

func (p *Processes) startSilent(e Executor) error {
	conn, err := grpc.NewClient("passthrough:///"+p.fleet.AgentsGateways()[0],
		append(agent.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	a, err := agent.New(agent.Config{ID: e.ID, SKU: e.SKU, Address: listener.Addr().String(), Resources: e.Resources,
		Reserved: e.Reserved, Attributes: e.Attributes, Generation: e.Generation, Driver: agent.Simulated{}, Conn: conn,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return errors.Join(err, listener.Close(), conn.Close())
	}
	h := &silentHost{answers: make(chan struct{})}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		select {
		case <-h.answers:
			answer, err := handle(ctx, req)
			return answer, rpc.ToStatus(err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	agent.NewServer(a).Register(server)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) }) // it ends with the context
	running.Go(func() {
		if !e.Connects {
			select {
			case <-h.answers:
			case <-ctx.Done():
			}
		}
		_ = server.Serve(listener) // it ends with Stop
	})
	h.close = func() error {
		cancel()
		server.Stop()
		running.Wait()
		return conn.Close()
	}
	p.silent[e.ID] = h
	return nil
}

// AnswerAgent implements Cluster.
func (p *Processes) AnswerAgent(id string) error {
	h := p.silent[id]
	if h == nil {
		return fmt.Errorf("%s is no silent host", id)
	}
	close(h.answers)
	return nil
}
