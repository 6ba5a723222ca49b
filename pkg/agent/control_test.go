package agent

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
)

// control is a control plane in this process. It registers agents, receives their
// heartbeats, and stores their reports.
type control struct {
	controlv1.UnimplementedAgentsServer
	controlv1.UnimplementedHeartbeatsServer

	every time.Duration

	// cluster is the name of the cluster.
	cluster string

	mu           sync.Mutex
	incarnations map[string]int64
	nonces       map[string]string
	former       map[string]bool // nonces that must not return
	refused      int             // refused registrations
	invalid      bool            // every registration is invalid
	// If owned is set, every executor belongs to another agent. secrets has the secrets of all
	// registrations.
	owned      bool
	secrets    []string
	superseded bool
	complete   map[string]int   // number of complete reports by executor
	completeAt map[string]int64 // the incarnation of the last one
	workers    map[string]*controlv1.WorkerReport
	history    map[string][]string
	bare       map[string]int // number of heartbeats without a report by executor
	streams    int            // number of opened streams
	// If deaf is set, the answers do not acknowledge ends.
	deaf bool
	// If mute is set, heartbeats get no answer.
	mute bool
	// If asks is set, the answer to the next heartbeat requests a complete report.
	asks bool
	// volumes has the last list of volumes by executor. If forgetful is set, the answers do not
	// say that a list was received.
	volumes   map[string]*controlv1.VolumeList
	lists     map[string]int64 // the incarnation of the last list by executor
	forgetful bool
	// gang, if set, lists the members of gangs.
	gang    *gangList
	changed chan struct{}
	wrong   []string
}

func newControl(every time.Duration) *control {
	return &control{
		every: every, incarnations: map[string]int64{}, nonces: map[string]string{}, former: map[string]bool{},
		complete: map[string]int{}, completeAt: map[string]int64{},
		workers: map[string]*controlv1.WorkerReport{}, history: map[string][]string{},
		bare: map[string]int{}, volumes: map[string]*controlv1.VolumeList{}, lists: map[string]int64{},
		changed: make(chan struct{}),
	}
}

// serve starts the server. It returns the address and a function that stops the server
// abruptly.
func (c *control) serve(t *testing.T, address string) (string, func()) {
	t.Helper()
	var gangs controlv1.GangsServer
	if c.gang != nil {
		gangs = c.gang
	}
	return serveControl(t, c, gangs, address)
}

// serveControl does the same as serve for a control plane that differs from control.
func serveControl(t *testing.T, c interface {
	controlv1.AgentsServer
	controlv1.HeartbeatsServer
}, gangs controlv1.GangsServer, address string) (string, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	controlv1.RegisterAgentsServer(server, c)
	controlv1.RegisterHeartbeatsServer(server, c)
	if gangs != nil {
		controlv1.RegisterGangsServer(server, gangs)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	stop := sync.OnceFunc(func() { server.Stop(); <-done })
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func (c *control) Register(_ context.Context, req *controlv1.RegisterRequest) (*controlv1.RegisterAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = append(c.secrets, req.Secret)
	if c.invalid {
		c.refused++
		c.emit()
		return nil, status.Error(codes.InvalidArgument, "sku: wrong")
	}
	if c.former[req.Nonce] || c.owned {
		c.refused++
		c.emit()
		if c.owned {
			return nil, refusal(fault.ReasonOtherAgent)
		}
		return nil, another()
	}
	if req.Cluster != "" && req.Cluster != c.cluster {
		c.refused++
		c.emit()
		return nil, refusal(fault.ReasonOtherCluster)
	}
	if c.nonces[req.Id] != req.Nonce {
		c.nonces[req.Id] = req.Nonce
		c.incarnations[req.Id]++
	}
	c.emit()
	return &controlv1.RegisterAnswer{Incarnation: c.incarnations[req.Id], AssignerTerm: 5,
		HeartbeatEvery: durationpb.New(c.every), Cluster: c.cluster}, nil
}

func (c *control) Heartbeat(stream grpc.BidiStreamingServer[controlv1.HeartbeatRequest,
	controlv1.HeartbeatAnswer]) error {
	var last int64 // the sequence of the last report on this stream
	for first := true; ; first = false {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		answer, err := c.beat(req, first, &last)
		if err != nil {
			return err
		}
		c.mu.Lock()
		mute := c.mute
		c.mu.Unlock()
		if mute {
			continue
		}
		if err := stream.Send(answer); err != nil {
			return nil
		}
	}
}

func (c *control) beat(req *controlv1.HeartbeatRequest, first bool, last *int64) (*controlv1.HeartbeatAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.emit()
	if req.Incarnation == 0 {
		c.wrong = append(c.wrong, "a heartbeat of an agent that is not registered")
	}
	if req.Incarnation != c.incarnations[req.Id] {
		return nil, another()
	}
	answer := &controlv1.HeartbeatAnswer{Present: !c.superseded, AssignerTerm: 5, Everything: c.asks,
		Superseded: c.superseded}
	c.asks = false
	r := req.Report
	if first {
		c.streams++
	}
	if first && (r == nil || !r.Complete) {
		c.wrong = append(c.wrong, "the first message has no complete report")
	}
	if list := req.Volumes; list != nil {
		if known := c.volumes[req.Id]; known != nil && c.lists[req.Id] == req.Incarnation && list.Sequence <= known.Sequence {
			c.wrong = append(c.wrong, fmt.Sprintf("list %v after list %v", list, known))
		}
		c.volumes[req.Id], c.lists[req.Id] = list, req.Incarnation
	} else if first {
		c.wrong = append(c.wrong, "the first message has no list of volumes")
	}
	if list := c.volumes[req.Id]; !c.forgetful && list != nil {
		answer.VolumesSequence = list.Sequence
	}
	if first && req.Nonce != c.nonces[req.Id] {
		c.wrong = append(c.wrong, "the first message has another nonce than the registration")
	}
	if r == nil {
		c.bare[req.Id]++
		return answer, nil
	}
	if r.Executor != req.Id || r.Incarnation != req.Incarnation || r.Sequence <= *last {
		c.wrong = append(c.wrong, fmt.Sprintf("report %v after sequence %d", r, *last))
	}
	*last = r.Sequence
	if r.Complete {
		c.complete[r.Executor]++
		c.completeAt[r.Executor] = req.Incarnation
	}
	answer.Report = &controlv1.ExecutorReportAnswer{Executor: r.Executor, Sequence: r.Sequence}
	for _, w := range r.Workers {
		key := reportKey(w)
		c.workers[key] = w
		c.history[key] = append(c.history[key], w.State.String())
		if w.State >= 6 && !c.deaf {
			answer.Report.Ended = append(answer.Report.Ended, w)
		}
	}
	return answer, nil
}

// another returns the error for an agent whose ID belongs to another agent.
func another() error { return refusal(fault.ReasonOtherIncarnation) }

func refusal(reason fault.Reason) error {
	s, err := status.New(codes.Aborted, "another").WithDetails(&errdetails.ErrorInfo{Domain: fault.Domain,
		Reason: string(reason)})
	if err != nil {
		return err
	}
	return s.Err()
}

func reportKey(w *controlv1.WorkerReport) string {
	return fmt.Sprintf("%s/%s/%d.%d@%d", w.Job, w.Stage, w.Index, w.Number, w.Epoch)
}

func (c *control) emit() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until the condition holds. It calls the condition with the lock held.
func (c *control) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		c.mu.Lock()
		ok, changed, wrong := holds(), c.changed, slices.Clone(c.wrong)
		c.mu.Unlock()
		if len(wrong) > 0 {
			t.Fatal(wrong)
		}
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// awaitState waits for a report of the worker in the given state and returns the report.
func (c *control) awaitState(t *testing.T, key, state string) *controlv1.WorkerReport {
	t.Helper()
	var w *controlv1.WorkerReport
	c.await(t, key+" "+state, func() bool {
		w = c.workers[key]
		return w != nil && w.State.String() == state
	})
	return w
}

// registered waits until an executor knows that it has at least the given incarnation, and has sent a
// complete report with it.
func (c *control) registered(t *testing.T, id string, incarnation int64) {
	t.Helper()
	c.await(t, fmt.Sprintf("%s at %d", id, incarnation), func() bool { return c.completeAt[id] >= incarnation })
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// runAgent runs an agent until the test ends or stop is called. A start request waits for
// its result, even on a slow machine.
func runAgent(t *testing.T, cfg Config) (a *Agent, stop func()) {
	t.Helper()
	cfg.startWait = time.Minute
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return a, stop
}
