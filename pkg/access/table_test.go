package access_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
)

// declared returns the methods of all proto services of Berth that are linked, and of the
// standard services that Berth's servers register.
func declared() map[string]bool {
	methods := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		name := string(file.Package())
		if !strings.HasPrefix(name, "berth.") && name != string(grpc_health_v1.File_grpc_health_v1_health_proto.Package()) &&
			name != string(grpc_reflection_v1.File_grpc_reflection_v1_reflection_proto.Package()) {
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

func TestEveryMethodOfEveryServiceHasARow(t *testing.T) {
	names, served := access.Methods()
	methods := declared()
	for method := range methods {
		if served[method] == access.None {
			t.Errorf("%s is missing in the table", method)
		}
	}
	for _, name := range names {
		if !methods[name] && strings.HasPrefix(name, "/") {
			t.Errorf("%s is in the table and in no proto file", name)
		}
	}
	for service, info := range rpc.NewServer(rpc.ServerOptions{}).GetServiceInfo() {
		for _, m := range info.Methods {
			if served["/"+service+"/"+m.Name] == access.None {
				t.Errorf("/%s/%s is registered and missing in the table", service, m.Name)
			}
		}
	}
}

// The test also covers methods that are added later.
func TestRolesStayOnTheirListeners(t *testing.T) {
	for _, rule := range access.Rules() {
		everybody := rule.Roles == identity.Everybody
		health := strings.HasPrefix(rule.Method, "/grpc.health.v1.Health/")
		api, plain := strings.HasPrefix(rule.Method, "/berth.v1."), !strings.HasPrefix(rule.Method, "/")
		own := identity.Service | identity.Gateway
		if strings.HasPrefix(rule.Method, "/grpc.reflection.v1.") {
			var all identity.Role
			for _, role := range identity.Roles {
				all |= role
			}
			if rule.Roles != all {
				t.Errorf("%+v: every caller with an identity may read the schema", rule)
			}
			continue
		}
		switch {
		case everybody && !health && !plain && rule.Method != berthv1.Callers_GetCaller_FullMethodName:
			t.Errorf("%+v: everybody may call it", rule)
		case rule.Listener == access.Public && !api && !health && !plain:
			t.Errorf("%+v: only the public API is public", rule)
		case rule.Listener == access.Public && !everybody && rule.Roles&(own|identity.Agent) != 0,
			rule.Listener&(access.Internal|access.Service|access.Agent) != 0 && !everybody && rule.Roles&^own != 0,
			rule.Listener == access.Agents && !everybody && rule.Roles != identity.Agent:
			t.Errorf("%+v: a role of another listener", rule)
		case rule.Roles&identity.Viewer != 0 && !everybody && rule.Roles&identity.Operator == 0:
			t.Errorf("%+v: a viewer may call it, and an operator may not", rule)
		}
	}
}
