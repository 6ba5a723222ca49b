package router

import (
	"slices"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
)

// table has, for each gRPC service, the service of Berth that serves it, and the maximum size
// of its requests in bytes. Requests of public services have the limit of REST bodies. The
// limit between Berth's own processes is higher, because these requests carry whole
// scheduling cycles and reports.
var table = []struct {
	desc    *grpc.ServiceDesc
	service string
	limit   int
}{
	{&berthv1.Reservations_ServiceDesc, model.ServiceRegistry, rpc.PublicMessageLimit},
	{&berthv1.Tenants_ServiceDesc, model.ServiceRegistry, rpc.PublicMessageLimit},
	{&berthv1.Executors_ServiceDesc, model.ServiceExecutorState, rpc.PublicMessageLimit},
	{&berthv1.Catalog_ServiceDesc, model.ServiceExecutorState, rpc.PublicMessageLimit},
	{&berthv1.Volumes_ServiceDesc, model.ServiceExecutorState, rpc.PublicMessageLimit},
	{&berthv1.Usage_ServiceDesc, model.ServiceExecutorState, rpc.PublicMessageLimit},
	{&berthv1.Assignments_ServiceDesc, model.ServiceAssigner, rpc.PublicMessageLimit},
	{&controlv1.Queue_ServiceDesc, model.ServiceRegistry, rpc.PeerMessageLimit},
	{&controlv1.Inventory_ServiceDesc, model.ServiceExecutorState, rpc.PeerMessageLimit},
	{&controlv1.Agents_ServiceDesc, model.ServiceExecutorState, rpc.PeerMessageLimit},
	{&controlv1.Dispatch_ServiceDesc, model.ServiceAssigner, rpc.PeerMessageLimit},
	{&controlv1.Gangs_ServiceDesc, model.ServiceAssigner, rpc.PublicMessageLimit},
}

// waiting has the methods whose calls wait for a change.
var waiting = []string{berthv1.Assignments_ListMembers_FullMethodName, controlv1.Gangs_ListMembers_FullMethodName}

// route is the destination of a method.
type route struct {
	service string
	limit   int
	conn    *grpc.ClientConn // to the service's leader
	// waits is true if calls of the method wait for a change.
	waits bool
}

// methods returns the routes by full method name.
func methods(conns map[string]*grpc.ClientConn) map[string]route {
	routes := map[string]route{}
	for _, row := range table {
		for _, m := range row.desc.Methods {
			method := "/" + row.desc.ServiceName + "/" + m.MethodName
			routes[method] = route{row.service, row.limit, conns[row.service], slices.Contains(waiting, method)}
		}
	}
	return routes
}
