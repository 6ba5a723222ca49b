package access

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// reflected serves reflection of a listener over a socket, and returns a stream to it.
func reflected(t *testing.T, at Listener) reflectionpb.ServerReflection_ServerReflectionInfoClient {
	t.Helper()
	server := rpc.NewServer(rpc.ServerOptions{})
	Reflect(server, at)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		<-served
	})
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func query(t *testing.T, stream reflectionpb.ServerReflection_ServerReflectionInfoClient,
	request *reflectionpb.ServerReflectionRequest) (*reflectionpb.ServerReflectionResponse, error) {
	t.Helper()
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	return stream.Recv()
}

var listServices = &reflectionpb.ServerReflectionRequest{
	MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}

// A caller finds each method of a gateway's listener in the schema, although the gateway
// forwards most of them.
func TestReflectionHasTheMethodsOfAListener(t *testing.T) {
	for _, at := range []Listener{Public, Agents, Internal} {
		stream := reflected(t, at)
		answer, err := query(t, stream, listServices)
		if err != nil {
			t.Fatal(err)
		}
		var services []string
		for _, s := range answer.GetListServicesResponse().GetService() {
			services = append(services, s.GetName())
		}
		files := &descriptorpb.FileDescriptorSet{}
		for _, name := range services {
			answer, err := query(t, stream, &reflectionpb.ServerReflectionRequest{
				MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
			if err != nil || answer.GetErrorResponse() != nil {
				t.Fatalf("%s on %v: %v %v", name, at, answer.GetErrorResponse(), err)
			}
			for _, encoded := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
				file := &descriptorpb.FileDescriptorProto{}
				if err := proto.Unmarshal(encoded, file); err != nil {
					t.Fatal(err)
				}
				// The server repeats the file that a request names.
				if !slices.ContainsFunc(files.File, func(o *descriptorpb.FileDescriptorProto) bool {
					return o.GetName() == file.GetName()
				}) {
					files.File = append(files.File, file)
				}
			}
		}
		schema, err := protodesc.NewFiles(files)
		if err != nil {
			t.Fatalf("%v: the files and their imports must be complete: %v", at, err)
		}
		found := map[string]bool{}
		_, served := Methods()
		for method, listeners := range served {
			call, isCall := strings.CutPrefix(method, "/")
			if listeners&at == 0 || !isCall {
				continue
			}
			service, name, _ := strings.Cut(call, "/")
			found[service] = true
			if !hasMethod(schema, service, name) {
				t.Errorf("%v: the schema has no %s", at, method)
			}
		}
		if at == Public && !found["berth.v1.Reservations"] || len(found) != len(services) {
			t.Errorf("%v lists %q", at, services)
		}
		for service := range found {
			if !slices.Contains(services, service) {
				t.Errorf("%v does not list %s", at, service)
			}
		}
	}
}

func hasMethod(schema *protoregistry.Files, service, name string) bool {
	found, err := schema.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	return err == nil && found != nil
}

// A process other than a gateway lists its own services.
func TestReflectionOfAService(t *testing.T) {
	answer, err := query(t, reflected(t, Service), listServices)
	if err != nil {
		t.Fatal(err)
	}
	var services []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		services = append(services, s.GetName())
	}
	if want := []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}; !slices.Equal(services, want) {
		t.Errorf("got %q, want %q", services, want)
	}
}

func TestReflectionRejectsLargeRequests(t *testing.T) {
	_, err := query(t, reflected(t, Public), &reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: strings.Repeat("a", maxReflectionRequest)}})
	if f := rpc.FromStatus(err); f == nil || f.Reason != fault.ReasonTooLarge {
		t.Errorf("got %v", err)
	}
}

// silentStream is a stream whose caller sends nothing.
type silentStream struct {
	reflectionStream
	ctx context.Context
}

func (s silentStream) Recv() (*reflectionpb.ServerReflectionRequest, error) {
	<-s.ctx.Done()
	return nil, io.ErrUnexpectedEOF
}

// At most maxReflections streams are open, and each ends after reflectionTime.
func TestReflectionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := newReflector(Public)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		began := time.Now()
		ended := make(chan error, maxReflections)
		for range maxReflections {
			go func() { ended <- served.ServerReflectionInfo(silentStream{ctx: ctx}) }()
		}
		synctest.Wait()
		var f *fault.Error
		if err := served.ServerReflectionInfo(silentStream{ctx: ctx}); !errors.As(err, &f) ||
			f.Reason != fault.ReasonOverloaded {
			t.Errorf("one stream more: %v", err)
		}
		for range maxReflections {
			if err := <-ended; !errors.As(err, &f) || f.Reason != fault.ReasonUnavailable {
				t.Errorf("the end of a stream: %v", err)
			}
		}
		if took := time.Since(began); took != reflectionTime {
			t.Errorf("the streams ended after %v", took)
		}
		if n := served.open.Load(); n != 0 {
			t.Errorf("%d streams count as open", n)
		}
	})
}
