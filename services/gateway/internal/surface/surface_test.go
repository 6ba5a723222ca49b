package surface_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/services/gateway/internal/surface"
)

// declared returns the methods of all proto services of Berth that are linked, and of the
// standard services that Berth's servers register.
func declared() map[string]bool {
	methods := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		name := string(file.Package())
		if !strings.HasPrefix(name, "berth.") && name != string(grpc_health_v1.File_grpc_health_v1_health_proto.Package()) {
			return true
		}
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				methods["/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name())] = true
			}
		}
		return true
	})
	return methods
}

func TestEveryMethodOfEveryServiceHasAnEntry(t *testing.T) {
	names, served := surface.Methods()
	methods := declared()
	for method := range methods {
		if _, has := served[method]; !has {
			t.Errorf("%s is missing in the table", method)
		}
	}
	for _, name := range names {
		if !methods[name] {
			t.Errorf("%s is in the table and in no proto file", name)
		}
	}
	// The table also has the standard services that a server registers, such as health.
	for service, info := range rpc.NewServer(rpc.ServerOptions{}).GetServiceInfo() {
		for _, m := range info.Methods {
			if _, has := served["/"+service+"/"+m.Name]; !has {
				t.Errorf("/%s/%s is registered and missing in the table", service, m.Name)
			}
		}
	}
}

// The public listener serves only the public API. The test also covers methods that are
// added later.
func TestOnlyThePublicAPIIsPublic(t *testing.T) {
	_, served := surface.Methods()
	for method, at := range served {
		health := strings.HasPrefix(method, "/grpc.health.v1.Health/")
		if public := strings.HasPrefix(method, "/berth.v1."); public != (at == surface.Public) {
			t.Errorf("%s is served on %v", method, at)
		}
		if health && at != surface.Public|surface.Agents|surface.Internal {
			t.Errorf("%s is served on %v", method, at)
		}
	}
}

func TestTheErrorNamesTheServingListener(t *testing.T) {
	for _, c := range []struct {
		at             surface.Listener
		method         string
		message        string
		called, served string
	}{
		{surface.Public, controlv1.Dispatch_ReportWorkers_FullMethodName,
			"berth.control.v1.Dispatch/ReportWorkers is served on --internal-listen", "--listen", "--internal-listen"},
		{surface.Agents, controlv1.Dispatch_ReportWorkers_FullMethodName,
			"berth.control.v1.Dispatch/ReportWorkers is served on --internal-listen", "--agents-listen", "--internal-listen"},
		{surface.Internal, controlv1.Agents_Register_FullMethodName,
			"berth.control.v1.Agents/Register is served on --agents-listen", "--internal-listen", "--agents-listen"},
		{surface.Agents, berthv1.Leaders_ListLeaders_FullMethodName, "berth.v1.Leaders/ListLeaders is served on --listen",
			"--agents-listen", "--listen"},
		{surface.Internal, controlv1.Heartbeats_Relay_FullMethodName,
			"berth.control.v1.Heartbeats/Relay is not served by gateways", "--internal-listen", ""},
		{surface.Internal, "/berth.control.v1.Queue/Guess", "Berth has no method /berth.control.v1.Queue/Guess", "", ""},
		{surface.Public, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
			"Berth has no method /grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "", ""},
	} {
		err := c.at.Allow(c.method)
		f := rpc.FromStatus(err)
		if status.Code(err) != codes.Unimplemented || f.Message != c.message || f.Reason != fault.ReasonUnsupported {
			t.Errorf("%v %s: %v", c.at, c.method, err)
			continue
		}
		if f.Meta[rpc.MetaCalled] != c.called || f.Meta[rpc.MetaServed] != c.served {
			t.Errorf("%v %s: metadata %v", c.at, c.method, f.Meta)
		}
	}
}
