package access

import (
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// The limits of reflection. A client such as grpcurl needs one stream for seconds, and opens
// another one if its stream has ended.
const (
	// maxReflections is the maximum number of open streams of reflection of a server.
	maxReflections = 16
	// reflectionTime is the maximum duration of a stream.
	reflectionTime = 30 * time.Second
	// maxReflectionRequest is the maximum size of a request, in bytes. It is above the length
	// of every name in the schema.
	maxReflectionRequest = 1 << 10
)

// Reflect serves gRPC reflection on a server of the listener. Reflection reads nothing but
// the schema. A gateway lists the services of the table, because it forwards most of them,
// and every other process lists the services that are registered.
func Reflect(s *rpc.Server, at Listener) {
	var services reflection.ServiceInfoProvider = s
	if at&(Public|Agents|Internal) != 0 {
		services = at
	}
	reflectionpb.RegisterServerReflectionServer(s, newReflector(services))
}

func newReflector(services reflection.ServiceInfoProvider) *reflector {
	return &reflector{ServerReflectionServer: reflection.NewServerV1(reflection.ServerOptions{Services: services})}
}

// GetServiceInfo implements reflection.ServiceInfoProvider. It returns the names of the
// services in the table that have a method on the listener.
func (l Listener) GetServiceInfo() map[string]grpc.ServiceInfo {
	services := map[string]grpc.ServiceInfo{}
	for method, r := range table {
		name, isCall := strings.CutPrefix(method, "/")
		if _, served := r.roles[l]; served && isCall {
			service, _, _ := strings.Cut(name, "/")
			services[service] = grpc.ServiceInfo{}
		}
	}
	return services
}

// reflector limits the streams of reflection.
type reflector struct {
	reflectionpb.ServerReflectionServer
	open atomic.Int64
}

type reflectionStream = grpc.BidiStreamingServer[reflectionpb.ServerReflectionRequest,
	reflectionpb.ServerReflectionResponse]

// ServerReflectionInfo implements grpc.reflection.v1.
func (r *reflector) ServerReflectionInfo(in reflectionStream) error {
	defer r.open.Add(-1)
	if r.open.Add(1) > maxReflections {
		return fault.New(fault.Exhausted, fault.ReasonOverloaded, "at most %d streams of reflection may be open",
			maxReflections)
	}
	end := time.NewTimer(reflectionTime)
	defer end.Stop()
	done := make(chan error, 1)
	go func() {
		done <- rpc.Recover(func() error { return r.ServerReflectionServer.ServerReflectionInfo(smallRequests{in}) })
	}()
	select {
	case err := <-done:
		return err
	case <-end.C:
		// gRPC ends the stream after the return, and so the goroutine.
		return fault.New(fault.Unavailable, fault.ReasonUnavailable,
			"a stream of reflection ends after %v: open another one", reflectionTime)
	}
}

// smallRequests is a stream that rejects large requests.
type smallRequests struct{ reflectionStream }

// Recv returns the next request.
func (s smallRequests) Recv() (*reflectionpb.ServerReflectionRequest, error) {
	request, err := s.reflectionStream.Recv()
	if err == nil && proto.Size(request) > maxReflectionRequest {
		return nil, fault.New(fault.Invalid, fault.ReasonTooLarge, "a request of reflection must have at most %d bytes",
			maxReflectionRequest)
	}
	return request, err
}
