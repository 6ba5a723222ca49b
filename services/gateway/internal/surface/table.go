package surface

import (
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
)

// table has the listeners that serve each method of Berth. No listener serves a method that
// is not in the table, such as gRPC reflection.
var table = map[string]Listener{
	healthpb.Health_Check_FullMethodName: all,
	healthpb.Health_List_FullMethodName:  all,
	healthpb.Health_Watch_FullMethodName: all,

	berthv1.Reservations_UpsertReservation_FullMethodName:  Public,
	berthv1.Reservations_GetReservation_FullMethodName:     Public,
	berthv1.Reservations_CancelReservation_FullMethodName:  Public,
	berthv1.Reservations_CancelJob_FullMethodName:          Public,
	berthv1.Reservations_ListReservations_FullMethodName:   Public,
	berthv1.Reservations_ListPending_FullMethodName:        Public,
	berthv1.Reservations_FlushReservations_FullMethodName:  Public,
	berthv1.Reservations_CancelWorkers_FullMethodName:      Public,
	berthv1.Reservations_MarkReady_FullMethodName:          Public,
	berthv1.Explanations_ExplainReservation_FullMethodName: Public,
	berthv1.Executors_ListExecutors_FullMethodName:         Public,
	berthv1.Executors_GetExecutor_FullMethodName:           Public,
	berthv1.Executors_DisableExecutors_FullMethodName:      Public,
	berthv1.Executors_EnableExecutors_FullMethodName:       Public,
	berthv1.Executors_DrainExecutor_FullMethodName:         Public,
	berthv1.Executors_ListIdleExecutors_FullMethodName:     Public,
	berthv1.Executors_ClaimForScaleDown_FullMethodName:     Public,
	berthv1.Catalog_ListSkus_FullMethodName:                Public,
	berthv1.Catalog_GetSku_FullMethodName:                  Public,
	berthv1.Catalog_PutSku_FullMethodName:                  Public,
	berthv1.Catalog_DeleteSku_FullMethodName:               Public,
	berthv1.Catalog_ListPools_FullMethodName:               Public,
	berthv1.Catalog_GetPool_FullMethodName:                 Public,
	berthv1.Catalog_PutPool_FullMethodName:                 Public,
	berthv1.Catalog_DeletePool_FullMethodName:              Public,
	berthv1.Usage_GetUsage_FullMethodName:                  Public,
	berthv1.Assignments_ListAssignments_FullMethodName:     Public,
	berthv1.Assignments_ClearQuarantine_FullMethodName:     Public,
	berthv1.Events_WatchEvents_FullMethodName:              Public,
	berthv1.Findings_ListFindings_FullMethodName:           Public,
	berthv1.Tenants_ListTenants_FullMethodName:             Public,
	berthv1.Leaders_ListLeaders_FullMethodName:             Public,
	berthv1.Leaders_Resign_FullMethodName:                  Public,

	controlv1.Agents_Register_FullMethodName:      Agents,
	controlv1.Heartbeats_Heartbeat_FullMethodName: Agents,

	// The registry calls the first two methods, and replicas of executor-state the others.
	controlv1.Inventory_TryAllocateAndLease_FullMethodName:  Internal,
	controlv1.Dispatch_CreateAssignmentTasks_FullMethodName: Internal,
	controlv1.Dispatch_ReportWorkers_FullMethodName:         Internal,
	controlv1.Agents_Announce_FullMethodName:                Internal,
	controlv1.Agents_Depart_FullMethodName:                  Internal,

	// Gateways and replicas call these methods at the services' own listeners.
	controlv1.Queue_Standing_FullMethodName:              None,
	controlv1.Queue_QueueFindings_FullMethodName:         None,
	controlv1.Inventory_ExplainFit_FullMethodName:        None,
	controlv1.Inventory_InventoryFindings_FullMethodName: None,
	controlv1.Dispatch_DispatchFindings_FullMethodName:   None,
	controlv1.Heartbeats_Relay_FullMethodName:            None,
	controlv1.Replicas_GetReplica_FullMethodName:         None,
	controlv1.Replicas_Resign_FullMethodName:             None,

	// The assigner calls these methods at the agents' own listeners.
	controlv1.Executor_SubmitTask_FullMethodName:  None,
	controlv1.Executor_SubmitTasks_FullMethodName: None,
	controlv1.Executor_StopTask_FullMethodName:    None,
}
