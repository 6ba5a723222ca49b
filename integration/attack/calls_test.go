package attack

import (
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// place is a listener that attacks reach: the option of a listener of a gateway, a service
// for the listener of its leader, or the agent of the executor host.
type place string

const (
	public   place = "--listen"
	agents   place = "--agents-listen"
	internal place = "--internal-listen"
	host     place = "agent"

	registry      place = model.ServiceRegistry
	executorState place = model.ServiceExecutorState
	assigner      place = model.ServiceAssigner
)

// of returns the address of the listener in a fleet, and the name of its process.
func (at place) of(ctx context.Context, f *fleet.Fleet) (process, address string, err error) {
	switch at {
	case public:
		return "gateway-0", f.Gateway(), nil
	case agents:
		return "gateway-0", f.AgentsGateways()[0], nil
	case internal:
		return "gateway-0", f.InternalGateways()[0], nil
	case host:
		e, err := f.Client().Executor(ctx, "host")
		return string(host), e.GetAddress(), err
	}
	p, _, err := f.Leader(ctx, string(at))
	if err != nil {
		return "", "", err
	}
	return p.Name, p.Addresses().Listen, nil
}

// attackCall is a method that an attack calls at some listeners.
type attackCall struct {
	attack string
	method string
	// at has the listeners that serve the method. misdirected has listeners that do not.
	at, misdirected []place
	// onlyTLS is true for a call that listeners in plain text accept from everybody, so that
	// it is an attack only with TLS.
	onlyTLS bool
	// request returns the request that TestAttacksWithTLS sends. The attacks in plain text send
	// the same method with other values too.
	request func(host *berthv1.Executor) proto.Message
}

func bystandersOutput() *berthv1.ReadOutputRequest {
	return &berthv1.ReadOutputRequest{Job: "bystander", Stage: "real", Executor: "host"}
}

// attackCalls has every call of the attacks. The attacks in plain text can call nothing
// else, and TestAttacksWithTLS calls all of it.
var attackCalls = []attackCall{
	{attack: "A1", method: controlv1.Inventory_TryAllocateAndLease_FullMethodName, at: []place{internal, executorState},
		misdirected: []place{public, agents},
		request: func(*berthv1.Executor) proto.Message {
			return &controlv1.CycleRequest{Term: math.MaxInt64, Cycle: 1}
		}},
	{attack: "A1", method: controlv1.Dispatch_CreateAssignmentTasks_FullMethodName, at: []place{internal, assigner},
		request: func(*berthv1.Executor) proto.Message { return dispatch(math.MaxInt64) }},
	{attack: "A2, A3 and A9", method: controlv1.Agents_Register_FullMethodName, at: []place{agents},
		misdirected: []place{public, internal},
		request:     func(*berthv1.Executor) proto.Message { return thiefsRegistration() }},
	{attack: "A2 and A3", method: controlv1.Heartbeats_Heartbeat_FullMethodName, at: []place{agents},
		misdirected: []place{public, internal},
		request: func(host *berthv1.Executor) proto.Message {
			return &controlv1.HeartbeatRequest{Id: "host", Incarnation: host.GetIncarnation(), Nonce: "thief",
				Report: &controlv1.ExecutorReport{Executor: "host", Incarnation: host.GetIncarnation(), Sequence: 1 << 40,
					Complete: true}}
		}},
	{attack: "A2", method: controlv1.Gangs_ListMembers_FullMethodName, at: []place{agents}, request: bystandersMembers},
	{attack: "A2", method: controlv1.Dispatch_ReportWorkers_FullMethodName, misdirected: []place{public, agents},
		request: noWorkers},
	{attack: "A2", method: controlv1.Dispatch_ReportWorkers_FullMethodName, at: []place{internal, assigner},
		onlyTLS: true, request: noWorkers},
	{attack: "A2", method: controlv1.Agents_Depart_FullMethodName, misdirected: []place{public, agents},
		request: departure},
	{attack: "A2", method: controlv1.Agents_Depart_FullMethodName, at: []place{internal, executorState}, onlyTLS: true,
		request: departure},
	{attack: "A2", method: controlv1.Agents_ReportVolumes_FullMethodName, at: []place{internal, executorState},
		misdirected: []place{public, agents}, onlyTLS: true, request: noVolumes},
	{attack: "A2", method: berthv1.Executors_ListExecutors_FullMethodName, misdirected: []place{agents},
		request: func(*berthv1.Executor) proto.Message { return &berthv1.ListExecutorsRequest{} }},
	{attack: "A4", method: controlv1.Executor_SubmitTask_FullMethodName, at: []place{host},
		request: func(host *berthv1.Executor) proto.Message {
			return &controlv1.SubmitTaskRequest{Term: math.MaxInt64, Executor: "host", Incarnation: host.GetIncarnation(),
				Worker: &controlv1.WorkerRef{Job: "thief", Stage: "s", Number: 1, Uid: "thief"}, Task: sleep()}
		}},
	{attack: "A4", method: controlv1.Executor_SubmitTasks_FullMethodName, at: []place{host},
		request: func(host *berthv1.Executor) proto.Message {
			return &controlv1.SubmitTasksRequest{Term: math.MaxInt64, Job: "thief", Stage: "s", Uid: "thief", Task: sleep(),
				Orders: []*controlv1.SubmitOrder{{Executor: "host", Incarnation: host.GetIncarnation(), Number: 1}}}
		}},
	{attack: "A4", method: controlv1.Executor_StopTask_FullMethodName, at: []place{host},
		request: func(host *berthv1.Executor) proto.Message {
			return &controlv1.StopTaskRequest{Term: math.MaxInt64, Executor: "host", Incarnation: host.GetIncarnation(),
				Worker: &controlv1.WorkerRef{Job: "bystander", Stage: "real", Number: 1}, Grace: durationpb.New(0)}
		}},
	{attack: "A4", method: controlv1.Executor_DropVolumes_FullMethodName, at: []place{host}, onlyTLS: true,
		request: func(host *berthv1.Executor) proto.Message {
			return &controlv1.DropVolumesRequest{Term: math.MaxInt64, Executor: "host", Incarnation: host.GetIncarnation(),
				Ids: []string{"bystanders"}}
		}},
	{attack: "A4", method: berthv1.Volumes_DeleteVolumes_FullMethodName, at: []place{public}, onlyTLS: true,
		request: func(*berthv1.Executor) proto.Message {
			return &berthv1.DeleteVolumesRequest{Ids: []string{"bystanders"}, Executor: "host"}
		}},
	{attack: "A4", method: berthv1.Volumes_AbandonVolumes_FullMethodName, at: []place{public}, onlyTLS: true,
		request: func(*berthv1.Executor) proto.Message {
			return &berthv1.AbandonVolumesRequest{Ids: []string{"bystanders"}}
		}},
	{attack: "A4", method: controlv1.Executor_ReadOutput_FullMethodName, at: []place{host},
		request: func(host *berthv1.Executor) proto.Message {
			return &controlv1.ReadWorkerOutputRequest{Incarnation: host.GetIncarnation(), Request: bystandersOutput()}
		}},
	{attack: "A4", method: controlv1.Dispatch_ReadOutput_FullMethodName, at: []place{assigner}, onlyTLS: true,
		request: func(*berthv1.Executor) proto.Message { return bystandersOutput() }},
	{attack: "A4", method: berthv1.Outputs_ReadOutput_FullMethodName, at: []place{public}, onlyTLS: true,
		request: func(*berthv1.Executor) proto.Message { return bystandersOutput() }},
	{attack: "A5 and A9", method: berthv1.Reservations_UpsertReservation_FullMethodName, at: []place{public},
		request: func(*berthv1.Executor) proto.Message {
			return &berthv1.UpsertReservationRequest{Reservation: &berthv1.Reservation{Job: "flood", Stage: "s", Count: 1,
				Constraints: &berthv1.Constraints{Sku: "host"},
				Task:        &berthv1.Task{Command: "env", Env: map[string]string{"LD_PRELOAD": "./payload"}}}}
		}},
	{attack: "A8", method: berthv1.Executors_DisableExecutors_FullMethodName, at: []place{public},
		request: func(*berthv1.Executor) proto.Message {
			return &berthv1.DisableExecutorsRequest{RequestId: "flood",
				Selector: &berthv1.ExecutorSelector{Ids: []string{"host", "unknown"}}}
		}},
	{attack: "A9", method: berthv1.Catalog_PutSku_FullMethodName, at: []place{public},
		request: func(*berthv1.Executor) proto.Message {
			return &berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: "flood", Resources: map[string]int64{"slots": 1}}}
		}},
	{attack: "a resignation", method: berthv1.Leaders_Resign_FullMethodName, at: []place{public}, onlyTLS: true,
		request: func(*berthv1.Executor) proto.Message {
			return &berthv1.ResignRequest{Service: model.ServiceRegistry}
		}},
	{attack: "a resignation", method: controlv1.Replicas_Resign_FullMethodName, at: []place{registry}, onlyTLS: true,
		request: func(*berthv1.Executor) proto.Message { return &controlv1.ResignRequest{Term: 1} }},
}

// dispatch returns a dispatch of a worker that no registry has requested.
func dispatch(term int64) *controlv1.CreateTasksRequest {
	return &controlv1.CreateTasksRequest{Term: term, Tasks: []*controlv1.CreateTask{
		{Key: &berthv1.ReservationKey{Job: "j", Stage: "s", Name: "main"}, Uid: "rogue", Mod: 1, Lease: 1},
	}}
}

// thiefsRegistration returns a registration with the ID of the executor host.
func thiefsRegistration() *controlv1.RegisterRequest {
	return &controlv1.RegisterRequest{Id: "host", Address: "127.0.0.1:1", Sku: "stolen", Host: "thief",
		Resources: map[string]int64{"slots": 64}, Nonce: "thief", Secret: "thief"}
}

// bystandersMembers returns a request for members, for the executor of another agent.
func bystandersMembers(host *berthv1.Executor) proto.Message {
	return &controlv1.GangMembersRequest{Id: "host", Incarnation: host.GetIncarnation(), Nonce: "thief",
		Request: &berthv1.ListMembersRequest{Job: "bystander", Stage: "real"}}
}

func noWorkers(host *berthv1.Executor) proto.Message {
	return &controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{{Executor: "host",
		Incarnation: host.GetIncarnation(), Sequence: 1 << 40, Complete: true}}}
}

// noVolumes returns a list without the volumes of the executor host.
func noVolumes(host *berthv1.Executor) proto.Message {
	return &controlv1.ReportVolumesRequest{Executor: "host", Incarnation: host.GetIncarnation(),
		Volumes: &controlv1.VolumeList{Sequence: 1 << 40}}
}

func departure(host *berthv1.Executor) proto.Message {
	return &controlv1.DepartRequest{Id: "host", Incarnation: host.GetIncarnation()}
}

func sleep() *berthv1.Task { return &berthv1.Task{Command: "sleep", Args: []string{"3600"}} }

// webCall is a request of attack A10, which a web page makes an operator's browser send.
type webCall struct {
	name, method, path, body string
	host                     string // by default, the address
	header                   map[string]string
}

const (
	disablePath = "/v1/executors:disable"
	disableHost = `{"requestId":"browser","selector":{"ids":["host"]}}`
)

// webCalls has every call of attack A10. The attack in plain text and TestAttacksWithTLS send
// all of them.
var webCalls = []webCall{
	{name: "POST from a foreign origin", method: http.MethodPost, path: disablePath, body: disableHost,
		header: map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}},
	{name: "POST from an opaque origin", method: http.MethodPost, path: disablePath, body: disableHost,
		header: map[string]string{"Origin": "null"}},
	{name: "POST from another site", method: http.MethodPost, path: disablePath, body: disableHost,
		header: map[string]string{"Sec-Fetch-Site": "cross-site"}},
	{name: "POST to a foreign host name", method: http.MethodPost, path: disablePath, body: disableHost,
		host: "rebound.example:8080"},
	{name: "GET with a foreign host name", method: http.MethodGet, path: "/v1/executors", host: "rebound.example:8080"},
}

// send sends the call and returns the status and the body of the answer.
func (c webCall) send(ctx context.Context, web *http.Client, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, c.method, url+c.path, strings.NewReader(c.body))
	if err != nil {
		return 0, "", err
	}
	if c.host != "" {
		request.Host = c.host
	}
	for name, value := range c.header {
		request.Header.Set(name, value)
	}
	response, err := web.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// sent has the calls that attacks in plain text have sent.
var sent struct {
	sync.Mutex
	calls map[string]bool
}

func nameOf(at place, method string) string { return method + " at " + string(at) }

// recorded returns options that record the calls of a rogue client at a listener. A call that
// attackCalls does not have is an error of the test.
func (w *target) recorded(at place) []grpc.DialOption {
	record := func(method string) {
		if method == healthpb.Health_Check_FullMethodName {
			return // The client probes a gateway whose answer takes long.
		}
		for _, c := range attackCalls {
			if c.method == method && !c.onlyTLS && (slices.Contains(c.at, at) || slices.Contains(c.misdirected, at)) {
				sent.Lock()
				defer sent.Unlock()
				if sent.calls == nil {
					sent.calls = map[string]bool{}
				}
				sent.calls[nameOf(at, method)] = true
				return
			}
		}
		w.Errorf("attackCalls does not have %s, so no test sends it with TLS", nameOf(at, method))
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			record(method)
			return invoke(ctx, method, request, answer, conn, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			record(method)
			return stream(ctx, d, conn, method, options...)
		}),
	}
}

// unsent returns the calls of attackCalls that no attack in plain text has sent.
func unsent() (list []string) {
	sent.Lock()
	defer sent.Unlock()
	for _, c := range attackCalls {
		for _, at := range slices.Concat(c.at, c.misdirected) {
			if name := nameOf(at, c.method); !c.onlyTLS && !sent.calls[name] {
				list = append(list, name)
			}
		}
	}
	return list
}
