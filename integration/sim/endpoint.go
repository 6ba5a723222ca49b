package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
)

// endpoint has the handlers of a node's shell by full method: the handlers of the real
// services, called without a network.
type endpoint map[string]func(ctx context.Context, request proto.Message) (any, error)

// RegisterService implements grpc.ServiceRegistrar.
func (f endpoint) RegisterService(desc *grpc.ServiceDesc, handlers any) {
	for _, m := range desc.Methods {
		f["/"+desc.ServiceName+"/"+m.MethodName] = func(ctx context.Context, request proto.Message) (any, error) {
			return m.Handler(handlers, ctx, func(into any) error {
				proto.Merge(into.(proto.Message), request)
				return nil
			}, nil)
		}
	}
}

// Do implements loop.Owner. It runs the world until there is a reply.
func (n *node[C]) Do(_ context.Context, request any) (value any, err error) {
	answered := false
	n.ask(request, time.Time{}, func(v any, e error) { value, err, answered = v, e, true })
	if !n.w.until(func() bool { return answered }) {
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s does not answer", n.name)
	}
	return value, err
}

// Read implements loop.Owner.
func (n *node[C]) Read(ctx context.Context, confirm bool, fn func(C)) error {
	if !n.leads() {
		return fault.New(fault.Precondition, fault.ReasonNotLeader, "%s does not lead", n.name)
	}
	if confirm {
		if err := n.confirm(ctx); err != nil {
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s no longer leads", n.name).Because(err)
		}
	}
	fn(n.driver.Core)
	return nil
}

// Status implements loop.Owner.
func (n *node[C]) Status() loop.Status {
	return loop.Status{Current: n.driver.Revision() > 0, Serving: n.leads(), Term: n.term, Revision: n.driver.Revision()}
}

// Now implements loop.Owner.
func (n *node[C]) Now() time.Time { return n.w.now }

// patience is the maximum duration of a wait, in simulated time.
const patience = 10 * time.Minute

// until runs the world until a condition holds, for at most patience. It reports whether the
// condition holds.
func (w *World) until(holds func() bool) bool { return w.within(patience, holds) }

// within does the same as until, with another limit.
func (w *World) within(d time.Duration, holds func() bool) bool {
	for end := w.now.Add(d); ; w.round() {
		if holds() {
			return true
		}
		if w.failure != nil || w.now.After(end) {
			return false
		}
	}
}

// Invoke implements grpc.ClientConnInterface. It works like a gateway, which answers some
// calls itself and forwards the others to the leader of a service.
func (s *Stage) Invoke(ctx context.Context, method string, request, answer any, opts ...grpc.CallOption) error {
	handler := s.composed[method]
	if handler == nil {
		return s.leaders.Invoke(ctx, method, request, answer, opts...)
	}
	value, err := handler(ctx, request.(proto.Message))
	return answered(answer, value, err)
}

// answered copies the value or the error of a handler to the answer of a call.
func answered(answer, value any, err error) error {
	if err != nil {
		return rpc.ToStatus(err)
	}
	proto.Merge(answer.(proto.Message), value.(proto.Message))
	return nil
}

// leaders is a connection to the leaders of the services. If the service has no leader, a
// call runs the world until there is a leader, at most until the caller's deadline in
// simulated time. Concurrent calls are answered one by one, because the world is
// single-threaded.
type leaders struct {
	w  *World
	mu sync.Mutex
}

// Invoke implements grpc.ClientConnInterface.
func (l *leaders) Invoke(ctx context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := patience
	if deadline, has := ctx.Deadline(); has {
		wait = min(wait, time.Until(deadline).Round(time.Second))
	}
	var value any
	err := error(fault.New(fault.Unavailable, fault.ReasonUnavailable, "no simulated service handles %s", method))
	l.w.within(wait, func() bool {
		handler := l.w.handler(method)
		if handler == nil {
			return false
		}
		value, err = handler(ctx, request.(proto.Message))
		return !fault.Is(err, fault.ReasonNotLeader)
	})
	return answered(answer, value, errors.Join(l.w.failure, err))
}

// NewStream implements grpc.ClientConnInterface.
func (*leaders) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, rpc.ToStatus(fault.New(fault.Invalid, fault.ReasonUnsupported,
		"the simulator has no streams: use Events"))
}

// handler returns the handler of the leader of the service that has the method.
func (w *World) handler(method string) func(context.Context, proto.Message) (any, error) {
	for _, service := range services {
		for _, r := range w.replicas[service] {
			if h := r.serves()[method]; h != nil && r.leads() {
				return h
			}
		}
	}
	return nil
}
