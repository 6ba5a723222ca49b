package access

import (
	"fmt"
	"maps"
	"slices"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/identity"
)

// Listener is one kind of listener of Berth's processes, or a set of kinds.
type Listener uint8

// The listeners.
const (
	// Public, Agents and Internal are the listeners of a gateway: for job services and
	// operators, for agents, and for services.
	Public Listener = 1 << iota
	Agents
	Internal
	// Service is the listener of a replica of a service, and Agent the listener of an agent.
	Service
	Agent
	// Operations is a separate listener for health and metrics.
	Operations

	// None is the empty set.
	None Listener = 0
)

// Listeners lists all listeners.
var Listeners = []Listener{Public, Agents, Internal, Service, Agent, Operations}

// String returns the name of the listener. The name of a gateway's listener is the option
// that sets its address.
func (l Listener) String() string {
	switch l {
	case Public:
		return "--listen"
	case Agents:
		return "--agents-listen"
	case Internal:
		return "--internal-listen"
	case Service:
		return "--listen of a service"
	case Agent:
		return "--listen of an agent"
	case Operations:
		return "--http-listen"
	}
	return fmt.Sprintf("listeners %06b", uint8(l))
}

// roles has the roles that may call a method on each listener. A listener that is missing
// does not serve the method.
type roles map[Listener]identity.Role

// row is what the table says about a method.
type row struct {
	roles roles
	// changes is true for a method that changes something. Such calls are in the audit log.
	changes bool
}

// any returns the roles that may call the method on some listener.
func (r row) any() (all identity.Role) {
	for _, may := range r.roles {
		all |= may
	}
	return all
}

const (
	everybody  = identity.Everybody
	job        = identity.Job
	agent      = identity.Agent
	autoscaler = identity.Autoscaler
	viewer     = identity.Viewer
	operator   = identity.Operator
	gateway    = identity.Gateway
	service    = identity.Service
	identified = job | agent | autoscaler | viewer | operator | gateway | service
)

// reads returns the row of a public method that gateways forward to a service.
func reads(may identity.Role) row { return row{roles: roles{Public: may, Service: gateway}} }

// changes returns the row of a public method that gateways forward to a service and that
// changes something.
func changes(may identity.Role) row { return row{roles{Public: may, Service: gateway}, true} }

// answered returns the row of a public method that gateways answer.
func answered(may identity.Role) row { return row{roles: roles{Public: may}} }

// internal is the row of a call between services, which goes through a gateway.
var internal = row{roles: roles{Internal: service, Service: gateway}}

// direct is the row of a call of a gateway at a service.
var direct = row{roles: roles{Service: gateway}}

// health is the row of health checks, which everybody may call everywhere.
var health = row{roles: roles{Public: everybody, Agents: everybody, Internal: everybody, Service: everybody,
	Agent: everybody}}

// schema is the row of reflection, which every caller with an identity may call everywhere.
var schema = row{roles: roles{Public: identified, Agents: identified, Internal: identified, Service: identified,
	Agent: identified}}

// table has the listeners and the roles of every method of every API of Berth. A method that
// is not in the table is not served anywhere. Requests for other paths over HTTP are methods
// named by a verb and the path, such as "GET /path".
var table = map[string]row{
	healthpb.Health_Check_FullMethodName: health,
	healthpb.Health_List_FullMethodName:  health,
	healthpb.Health_Watch_FullMethodName: health,

	reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName: schema,

	berthv1.Reservations_UpsertReservation_FullMethodName:  changes(job | operator),
	berthv1.Reservations_GetReservation_FullMethodName:     reads(job | viewer | operator),
	berthv1.Reservations_BindReservation_FullMethodName:    changes(job | operator),
	berthv1.Reservations_CancelReservation_FullMethodName:  changes(job | operator),
	berthv1.Reservations_CancelJob_FullMethodName:          changes(job | operator),
	berthv1.Reservations_CancelWorkers_FullMethodName:      changes(job | operator),
	berthv1.Reservations_ListReservations_FullMethodName:   reads(job | viewer | operator),
	berthv1.Reservations_ListJobs_FullMethodName:           reads(job | viewer | operator),
	berthv1.Reservations_ListPending_FullMethodName:        reads(viewer | operator),
	berthv1.Reservations_GetPendingHistory_FullMethodName:  reads(viewer | operator),
	berthv1.Reservations_FlushReservations_FullMethodName:  changes(operator),
	berthv1.Reservations_MarkReady_FullMethodName:          changes(operator),
	berthv1.Explanations_ExplainReservation_FullMethodName: answered(job | viewer | operator),
	berthv1.Events_WatchEvents_FullMethodName:              answered(job | viewer | operator),
	berthv1.Assignments_ListAssignments_FullMethodName:     reads(job | viewer | operator),
	berthv1.Assignments_ListMembers_FullMethodName:         reads(job | viewer | operator),
	berthv1.Assignments_SetMembers_FullMethodName:          changes(job | operator),
	berthv1.Assignments_SignalWorkers_FullMethodName:       changes(job | operator),
	berthv1.Assignments_ClearQuarantine_FullMethodName:     changes(operator),

	berthv1.Executors_ListExecutors_FullMethodName:     reads(autoscaler | viewer | operator),
	berthv1.Executors_GetExecutor_FullMethodName:       reads(autoscaler | viewer | operator),
	berthv1.Executors_ListIdleExecutors_FullMethodName: reads(autoscaler | viewer | operator),
	berthv1.Executors_ClaimForScaleDown_FullMethodName: changes(autoscaler | operator),
	berthv1.Executors_DisableExecutors_FullMethodName:  changes(operator),
	berthv1.Executors_EnableExecutors_FullMethodName:   changes(autoscaler | operator),
	berthv1.Executors_DrainExecutor_FullMethodName:     changes(operator),

	berthv1.Catalog_ListSkus_FullMethodName:   reads(job | autoscaler | viewer | operator),
	berthv1.Catalog_GetSku_FullMethodName:     reads(job | autoscaler | viewer | operator),
	berthv1.Catalog_PutSku_FullMethodName:     changes(operator),
	berthv1.Catalog_DeleteSku_FullMethodName:  changes(operator),
	berthv1.Catalog_ListPools_FullMethodName:  reads(job | autoscaler | viewer | operator),
	berthv1.Catalog_GetPool_FullMethodName:    reads(job | autoscaler | viewer | operator),
	berthv1.Catalog_PutPool_FullMethodName:    changes(operator),
	berthv1.Catalog_DeletePool_FullMethodName: changes(operator),

	berthv1.Volumes_ListVolumes_FullMethodName:    reads(job | viewer | operator),
	berthv1.Volumes_DeleteVolumes_FullMethodName:  changes(job | operator),
	berthv1.Volumes_AbandonVolumes_FullMethodName: changes(operator),

	// The output of workers may be secret, and viewers read everything else.
	berthv1.Outputs_ReadOutput_FullMethodName: answered(job | operator),

	berthv1.Usage_GetUsage_FullMethodName:        reads(autoscaler | viewer | operator),
	berthv1.Tenants_ListTenants_FullMethodName:   reads(job | viewer | operator),
	berthv1.Findings_ListFindings_FullMethodName: answered(viewer | operator),
	berthv1.Leaders_ListLeaders_FullMethodName:   answered(viewer | operator),
	berthv1.Leaders_Resign_FullMethodName:        {roles{Public: operator}, true},

	// A page must be able to find out that its user has no identity yet.
	berthv1.Callers_GetCaller_FullMethodName:         answered(everybody),
	berthv1.AuditLog_ListAuditEntries_FullMethodName: answered(operator),

	controlv1.Agents_Register_FullMethodName:      {roles{Agents: agent, Service: gateway}, true},
	controlv1.Heartbeats_Heartbeat_FullMethodName: {roles: roles{Agents: agent}},
	controlv1.Gangs_ListMembers_FullMethodName:    {roles: roles{Agents: agent, Service: gateway}},

	// The registry calls the first two methods, and replicas of executor-state the others.
	controlv1.Inventory_TryAllocateAndLease_FullMethodName:  internal,
	controlv1.Dispatch_CreateAssignmentTasks_FullMethodName: internal,
	controlv1.Dispatch_ReportWorkers_FullMethodName:         internal,
	controlv1.Agents_Announce_FullMethodName:                internal,
	controlv1.Agents_Depart_FullMethodName:                  internal,
	controlv1.Agents_ReportVolumes_FullMethodName:           internal,
	controlv1.Agents_AnswerOffers_FullMethodName:            internal,

	controlv1.Queue_Standing_FullMethodName:              direct,
	controlv1.Queue_QueueFindings_FullMethodName:         direct,
	controlv1.Inventory_ExplainFit_FullMethodName:        direct,
	controlv1.Inventory_InventoryFindings_FullMethodName: direct,
	controlv1.Dispatch_DispatchFindings_FullMethodName:   direct,
	controlv1.Dispatch_ReadOutput_FullMethodName:         direct,
	controlv1.Heartbeats_Relay_FullMethodName:            direct,
	controlv1.Replicas_Resign_FullMethodName:             {roles{Service: gateway}, true},
	controlv1.Replicas_GetReplica_FullMethodName:         {roles: roles{Service: gateway | service}},

	controlv1.Executor_SubmitTask_FullMethodName:  {roles{Agent: service}, true},
	controlv1.Executor_SubmitTasks_FullMethodName: {roles{Agent: service}, true},
	controlv1.Executor_StopTask_FullMethodName:    {roles{Agent: service}, true},
	controlv1.Executor_SignalTask_FullMethodName:  {roles{Agent: service}, true},
	controlv1.Executor_DropVolumes_FullMethodName: {roles{Agent: service}, true},
	controlv1.Executor_ReadOutput_FullMethodName:  {roles: roles{Agent: service}},

	// Each path that a watch follows is admitted as a call of its own, so these are the roles
	// that may read something. A caller without an identity could only keep streams open.
	"GET /v1/watch": {roles: roles{Public: job | autoscaler | viewer | operator}},
	createSession:   {roles{Public: everybody}, true},
	deleteSession:   {roles{Public: everybody}, true},

	"GET /":             {roles: roles{Public: everybody}},
	"GET /openapi.json": {roles: roles{Public: everybody}},
	"GET /healthz":      {roles: roles{Public: everybody, Operations: everybody}},
	"GET /readyz":       {roles: roles{Public: everybody, Operations: everybody}},
	"GET /leaderz":      {roles: roles{Public: everybody, Operations: everybody}},
	"GET /metrics":      {roles: roles{Public: viewer | operator, Operations: viewer | operator}},
	"GET /debug/pprof/": {roles: roles{Operations: operator}},
}

// Rule is what the table says about one method on one listener.
type Rule struct {
	Method   string
	Listener Listener
	Roles    identity.Role
	// Changes is true for a method that changes something.
	Changes bool
}

// Rules returns the table, sorted by method and listener.
func Rules() []Rule {
	var list []Rule
	for _, method := range slices.Sorted(maps.Keys(table)) {
		for _, at := range Listeners {
			if may, served := table[method].roles[at]; served {
				list = append(list, Rule{method, at, may, table[method].changes})
			}
		}
	}
	return list
}

// Methods returns the full names of the methods in the table, sorted, and the listeners that
// serve each method.
func Methods() (names []string, served map[string]Listener) {
	served = map[string]Listener{}
	for _, rule := range Rules() {
		served[rule.Method] |= rule.Listener
	}
	return slices.Sorted(maps.Keys(table)), served
}
