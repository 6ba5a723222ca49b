package router

import (
	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpc"
)

// backend is one way to be answered: the leader of a service, or any replica
// of it.
type backend struct {
	service string
	// health is the name that a replica reports as serving to be called.
	health string
}

var (
	registryLeader = backend{model.ServiceRegistry, rpc.LeaderHealth(model.ServiceRegistry)}
	executorLeader = backend{model.ServiceExecutorState, rpc.LeaderHealth(model.ServiceExecutorState)}
	executorAny    = backend{model.ServiceExecutorState, model.ServiceExecutorState}
	assignerLeader = backend{model.ServiceAssigner, rpc.LeaderHealth(model.ServiceAssigner)}
)

// table says who answers what, and how many bytes a request may have. Calls of
// the public services are bounded like REST bodies; those between Berth's own
// processes carry whole passes and reports.
var table = []struct {
	desc  *grpc.ServiceDesc
	to    backend
	limit int
}{
	{&berthv1.Reservations_ServiceDesc, registryLeader, rpc.PublicMessageLimit},
	{&berthv1.Executors_ServiceDesc, executorLeader, rpc.PublicMessageLimit},
	{&berthv1.Catalog_ServiceDesc, executorLeader, rpc.PublicMessageLimit},
	{&berthv1.Usage_ServiceDesc, executorLeader, rpc.PublicMessageLimit},
	{&berthv1.Assignments_ServiceDesc, assignerLeader, rpc.PublicMessageLimit},
	{&controlv1.Queue_ServiceDesc, registryLeader, rpc.PeerMessageLimit},
	{&controlv1.Inventory_ServiceDesc, executorLeader, rpc.PeerMessageLimit},
	{&controlv1.Agents_ServiceDesc, executorLeader, rpc.PeerMessageLimit},
	{&controlv1.Heartbeats_ServiceDesc, executorAny, rpc.PeerMessageLimit},
	{&controlv1.Handout_ServiceDesc, assignerLeader, rpc.PeerMessageLimit},
}

// route is where one method goes.
type route struct {
	backend
	limit  int
	stream bool
	conn   *grpc.ClientConn
}

// methods spreads the table to full method names.
func methods(conns map[backend]*grpc.ClientConn) map[string]route {
	routes := map[string]route{}
	for _, row := range table {
		to := route{backend: row.to, limit: row.limit, conn: conns[row.to]}
		for _, m := range row.desc.Methods {
			routes["/"+row.desc.ServiceName+"/"+m.MethodName] = to
		}
		to.stream = true
		for _, s := range row.desc.Streams {
			routes["/"+row.desc.ServiceName+"/"+s.StreamName] = to
		}
	}
	return routes
}
