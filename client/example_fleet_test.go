package client_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// List all executors. The loop reads further pages as needed.
func ExampleClient_Executors() {
	c, stop := startGateway()
	defer stop()

	request := &berthv1.ListExecutorsRequest{PageSize: 2}
	for e, err := range c.Executors(context.Background(), request) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.GetId(), e.GetState())
	}
	// Output:
	// sim-0 READY
	// sim-1 READY
	// sim-2 READY
}

// Read one page of a list, and the token of the next page.
func ExampleClient_ExecutorsPage() {
	c, stop := startGateway()
	defer stop()

	page, err := c.ExecutorsPage(context.Background(), &berthv1.ListExecutorsRequest{PageSize: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.GetExecutors()), "executors, more:", page.GetNextPageToken() != "")
	// Output:
	// 2 executors, more: true
}

// Read one executor.
func ExampleClient_Executor() {
	c, stop := startGateway()
	defer stop()

	executor, err := c.Executor(context.Background(), "sim-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(executor.GetSku(), executor.GetState())
	// Output:
	// sim READY
}

// Take two executors out of allocation for maintenance. Their workers keep running.
func ExampleClient_Disable() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	disabled, err := c.Disable(ctx, &berthv1.DisableExecutorsRequest{
		RequestId: "kernel", Reason: "new kernel",
		Selector: &berthv1.ExecutorSelector{Ids: []string{"sim-0", "sim-1"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(disabled.GetRequestId(), "applies to", disabled.GetExecutors(), "executors")
	// Output:
	// kernel applies to 2 executors
}

// Undo a request to disable, by its ID.
func ExampleClient_Enable() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	disabled, err := c.Disable(ctx, &berthv1.DisableExecutorsRequest{
		RequestId: "kernel", Reason: "new kernel",
		Selector: &berthv1.ExecutorSelector{Ids: []string{"sim-0", "sim-1"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	undone, err := c.Enable(ctx, &berthv1.EnableExecutorsRequest{DisableRequestId: disabled.GetRequestId()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(undone, "undone")
	// Output:
	// 1 undone
}

// Take an executor out of allocation and stop its workers.
func ExampleClient_Drain() {
	c, stop := startGateway()
	defer stop()

	executor, err := c.Drain(context.Background(), &berthv1.DrainExecutorRequest{Id: "sim-1", Reason: "retired"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("draining:", executor.GetDraining(), "workers:", executor.GetWorkers())
	// Output:
	// draining: true workers: 2
}

// Show why executors are idle.
func ExampleClient_Idle() {
	c, stop := startGateway()
	defer stop()

	idle, err := c.Idle(context.Background(), &berthv1.ListIdleExecutorsRequest{Sku: "sim"})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range idle.GetExecutors() {
		fmt.Println(e.GetId(), e.GetReason())
	}
	// Output:
	// sim-2 DEMAND_DOES_NOT_FIT
}

// Choose an idle executor to remove. It gets no workers from then on.
func ExampleClient_ClaimForScaleDown() {
	c, stop := startGateway()
	defer stop()

	claim, err := c.ClaimForScaleDown(context.Background(), &berthv1.ClaimForScaleDownRequest{
		RequestId: "shrink-1", Sku: "sim", Max: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range claim.GetExecutors() {
		fmt.Println("remove", e.GetId())
	}
	// Output:
	// remove sim-2
}

// Scale a SKU to the size that its rule recommends.
func ExampleClient_Usage() {
	c, stop := startGateway()
	defer stop()

	usage, err := c.Usage(context.Background(), "sim")
	if err != nil {
		log.Fatal(err)
	}
	for _, sku := range usage.GetSkus() {
		fmt.Printf("%s: %d executors, %d wanted\n", sku.GetSku(), sku.GetTotal(), sku.GetWantedSize())
	}
	// Output:
	// sim: 3 executors, 6 wanted
}

// Describe a SKU, and keep two idle executors in addition to the demand.
func ExampleClient_PutSKU() {
	c, stop := startGateway()
	defer stop()

	sku, err := c.PutSKU(context.Background(), &berthv1.Sku{
		Name: "sim", Resources: map[string]int64{"slots": 1}, Scale: &berthv1.ScaleRule{MinIdle: 2},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sku.GetName(), sku.GetResources())
	// Output:
	// sim map[slots:1]
}

// Read a SKU.
func ExampleClient_SKU() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.PutSKU(ctx, &berthv1.Sku{Name: "sim", Resources: map[string]int64{"slots": 1}}); err != nil {
		log.Fatal(err)
	}
	sku, err := c.SKU(ctx, "sim")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sku.GetName(), sku.GetResources())
	// Output:
	// sim map[slots:1]
}

// List the SKUs.
func ExampleClient_SKUs() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.PutSKU(ctx, &berthv1.Sku{Name: "sim", Resources: map[string]int64{"slots": 1}}); err != nil {
		log.Fatal(err)
	}
	list, err := c.SKUs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, sku := range list.GetSkus() {
		fmt.Println(sku.GetName())
	}
	// Output:
	// sim
}

// Delete a SKU. The call may be repeated.
func ExampleClient_DeleteSKU() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.PutSKU(ctx, &berthv1.Sku{Name: "sim", Resources: map[string]int64{"slots": 1}}); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := c.DeleteSKU(ctx, "sim"); err != nil {
			log.Fatal(err)
		}
	}
	_, err := c.SKU(ctx, "sim")
	fmt.Println("deleted:", fault.Is(err, fault.ReasonNotFound))
	// Output:
	// deleted: true
}

// Name the executors of a zone, and wait five minutes before their workers count as lost.
func ExampleClient_PutPool() {
	c, stop := startGateway()
	defer stop()

	pool, err := c.PutPool(context.Background(), &berthv1.Pool{
		Name: "night", Attributes: map[string]string{"zone": "b"}, LostAfter: durationpb.New(5 * time.Minute),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.GetName(), pool.GetLostAfter().AsDuration())
	// Output:
	// night 5m0s
}

// Read a pool.
func ExampleClient_Pool() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.PutPool(ctx, &berthv1.Pool{Name: "night", Attributes: map[string]string{"zone": "b"}}); err != nil {
		log.Fatal(err)
	}
	pool, err := c.Pool(ctx, "night")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.GetName(), pool.GetAttributes())
	// Output:
	// night map[zone:b]
}

// List the pools.
func ExampleClient_Pools() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.PutPool(ctx, &berthv1.Pool{Name: "night", Attributes: map[string]string{"zone": "b"}}); err != nil {
		log.Fatal(err)
	}
	list, err := c.Pools(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, pool := range list.GetPools() {
		fmt.Println(pool.GetName())
	}
	// Output:
	// night
}

// Delete a pool. The call may be repeated.
func ExampleClient_DeletePool() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.PutPool(ctx, &berthv1.Pool{Name: "night", Attributes: map[string]string{"zone": "b"}}); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := c.DeletePool(ctx, "night"); err != nil {
			log.Fatal(err)
		}
	}
	_, err := c.Pool(ctx, "night")
	fmt.Println("deleted:", fault.Is(err, fault.ReasonNotFound))
	// Output:
	// deleted: true
}

// Show the problems that an operator should know.
func ExampleClient_Findings() {
	c, stop := startGateway()
	defer stop()

	list, err := c.Findings(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range list.GetFindings() {
		fmt.Printf("%s %s: %s\n", finding.GetKind(), finding.GetObject(), finding.GetMessage())
	}
	// Output:
	// QUARANTINED train/gpu/0.1: the executor host-0 does not confirm the stop
}

// Show the leader of each service.
func ExampleClient_Leaders() {
	c, stop := startGateway()
	defer stop()

	list, err := c.Leaders(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, service := range list.GetServices() {
		fmt.Println(service.GetService(), service.GetLeader())
	}
	// Output:
	// registry registry-0
	// executor-state executor-state-0
	// assigner assigner-0
}

// Move the leadership of the registry to a standby. The term makes it safe to repeat the call.
func ExampleClient_Resign() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	list, err := c.Leaders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	registry := list.GetServices()[0]
	ended, err := c.Resign(ctx, registry.GetService(), registry.GetTerm())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ended.GetReplica(), "resigned")
	// Output:
	// registry-0 resigned
}

// Show what each tenant uses of its limits.
func ExampleClient_Tenants() {
	c, stop := startGateway()
	defer stop()

	list, err := c.Tenants(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range list.GetTenants() {
		fmt.Printf("%s: %d of %d workers\n", tenant.GetName(), tenant.GetUse().GetWorkers(), tenant.GetLimits().GetWorkers())
	}
	// Output:
	// train: 12 of 4000 workers
}

// Offer an action only if the caller's role may call its method.
func ExampleClient_Caller() {
	c, stop := startGateway()
	defer stop()

	caller, err := c.Caller(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(caller.GetName(), slices.Contains(caller.GetMethods(), "berth.v1.Leaders/Resign"))
	// Output:
	// alice true
}

// Show who changed what.
func ExampleClient_AuditEntriesPage() {
	c, stop := startGateway()
	defer stop()

	page, err := c.AuditEntriesPage(context.Background(), &berthv1.ListAuditEntriesRequest{PageSize: 1000})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range page.GetEntries() {
		fmt.Println(e.GetCaller(), e.GetMethod(), e.GetObject(), e.GetOutcome())
	}
	// Output:
	// berth://default/operator/alice berth.v1.Executors/DrainExecutor host-1 OK
}
