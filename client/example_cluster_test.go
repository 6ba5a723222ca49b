package client_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	berthv1 "berth.dev/api/berth/v1"
)

// cluster answers the calls about the fleet: three executors of the SKU sim, a catalog and
// three services.
type cluster struct {
	berthv1.UnimplementedExecutorsServer
	berthv1.UnimplementedCatalogServer
	berthv1.UnimplementedUsageServer
	berthv1.UnimplementedFindingsServer
	berthv1.UnimplementedLeadersServer
	berthv1.UnimplementedTenantsServer
	berthv1.UnimplementedCallersServer
	berthv1.UnimplementedAuditLogServer
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedOutputsServer
	berthv1.UnimplementedVolumesServer

	mu       sync.Mutex
	disabled map[string][]string // the executors of each request to disable
	skus     map[string]*berthv1.Sku
	pools    map[string]*berthv1.Pool
}

// registerCluster adds a new cluster to a server.
func registerCluster(server grpc.ServiceRegistrar) {
	c := &cluster{disabled: map[string][]string{}, skus: map[string]*berthv1.Sku{}, pools: map[string]*berthv1.Pool{}}
	berthv1.RegisterExecutorsServer(server, c)
	berthv1.RegisterCatalogServer(server, c)
	berthv1.RegisterUsageServer(server, c)
	berthv1.RegisterFindingsServer(server, c)
	berthv1.RegisterLeadersServer(server, c)
	berthv1.RegisterTenantsServer(server, c)
	berthv1.RegisterCallersServer(server, c)
	berthv1.RegisterAuditLogServer(server, c)
	berthv1.RegisterExplanationsServer(server, c)
	berthv1.RegisterOutputsServer(server, c)
	berthv1.RegisterVolumesServer(server, c)
}

// ListVolumes lists the volumes of the stage db/data, one in a page.
func (c *cluster) ListVolumes(_ context.Context, q *berthv1.ListVolumesRequest) (*berthv1.ListVolumesAnswer, error) {
	var all []*berthv1.Volume
	for i, id := range []string{"6b1f0c2d9e47", "a03c5d18f7b2"} {
		all = append(all, &berthv1.Volume{Id: id, Job: "db", Stage: "data", Index: int32(i), Resource: "disk",
			Amount: 2 << 30, Executor: fmt.Sprintf("sim-%d", i), State: berthv1.Volume_READY})
	}
	if q.GetJob() != "" && q.GetJob() != "db" {
		all = nil
	}
	volumes, next, err := page(all, q.GetPageToken(), 1)
	return &berthv1.ListVolumesAnswer{Volumes: volumes, NextPageToken: next, Revision: 17}, err
}

func (c *cluster) DeleteVolumes(_ context.Context, q *berthv1.DeleteVolumesRequest) (*berthv1.DeleteVolumesAnswer,
	error) {
	return &berthv1.DeleteVolumesAnswer{Count: int32(len(q.GetIds()))}, nil
}

func (c *cluster) AbandonVolumes(_ context.Context, q *berthv1.AbandonVolumesRequest) (*berthv1.AbandonVolumesAnswer,
	error) {
	return &berthv1.AbandonVolumesAnswer{Count: int32(len(q.GetIds()))}, nil
}

// outputText is the output of every worker. A call returns at most one line.
const outputText = "step 1\nstep 2\ndone\n"

func (c *cluster) ReadOutput(_ context.Context, q *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	line, _, _ := strings.Cut(outputText[q.GetOffset():], "\n")
	position := q.GetOffset() + int64(len(line)) + 1
	return &berthv1.ReadOutputAnswer{Executor: "sim-0", Number: 1, Epoch: 7, Offset: q.GetOffset(),
		Data: []byte(line + "\n"), End: int64(len(outputText)), Complete: position == int64(len(outputText))}, nil
}

// page returns the items of one page, and the token of the next one. The token of a page is
// the number of items before it. The default size is 100.
func page[T any](items []T, token string, size int32) ([]T, string, error) {
	begin := 0
	if token != "" {
		var err error
		if begin, err = strconv.Atoi(token); err != nil || begin > len(items) {
			return nil, "", status.Error(codes.InvalidArgument, "the page token is invalid")
		}
	}
	end := begin + int(cmp.Or(size, 100))
	if end >= len(items) {
		return items[begin:], "", nil
	}
	return items[begin:end], strconv.Itoa(end), nil
}

// executors returns the executors, ordered by ID. The caller must hold the lock.
func (c *cluster) executors() (list []*berthv1.Executor) {
	for i := range 3 {
		e := &berthv1.Executor{Id: fmt.Sprintf("sim-%d", i), Sku: "sim", State: berthv1.Executor_READY}
		for _, id := range slices.Sorted(maps.Keys(c.disabled)) {
			if slices.Contains(c.disabled[id], e.Id) {
				e.Disabled = append(e.Disabled, &berthv1.DisableMark{RequestId: id})
			}
		}
		list = append(list, e)
	}
	return list
}

func (c *cluster) ListExecutors(_ context.Context, q *berthv1.ListExecutorsRequest) (*berthv1.ListExecutorsAnswer,
	error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	executors, next, err := page(c.executors(), q.GetPageToken(), q.GetPageSize())
	return &berthv1.ListExecutorsAnswer{Executors: executors, NextPageToken: next, Revision: 17}, err
}

func (c *cluster) GetExecutor(_ context.Context, q *berthv1.GetExecutorRequest) (*berthv1.Executor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.executors() {
		if e.GetId() == q.GetId() {
			return e, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no executor %s", q.GetId())
}

func (c *cluster) DisableExecutors(_ context.Context,
	q *berthv1.DisableExecutorsRequest) (*berthv1.DisableExecutorsAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disabled[q.GetRequestId()] = q.GetSelector().GetIds()
	return &berthv1.DisableExecutorsAnswer{RequestId: q.GetRequestId(),
		Executors: int32(len(q.GetSelector().GetIds()))}, nil
}

func (c *cluster) EnableExecutors(_ context.Context,
	q *berthv1.EnableExecutorsRequest) (*berthv1.EnableExecutorsAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &berthv1.EnableExecutorsAnswer{RequestId: q.GetRequestId()}
	if _, known := c.disabled[q.GetDisableRequestId()]; known {
		delete(c.disabled, q.GetDisableRequestId())
		answer.Undone = 1
	}
	return answer, nil
}

func (c *cluster) DrainExecutor(_ context.Context, q *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	return &berthv1.Executor{Id: q.GetId(), Draining: true, Workers: 2}, nil
}

func (c *cluster) ListIdleExecutors(context.Context,
	*berthv1.ListIdleExecutorsRequest) (*berthv1.ListIdleExecutorsAnswer, error) {
	return &berthv1.ListIdleExecutorsAnswer{Executors: []*berthv1.IdleExecutor{
		{Id: "sim-2", Sku: "sim", Reason: "DEMAND_DOES_NOT_FIT"}}}, nil
}

func (c *cluster) ClaimForScaleDown(_ context.Context,
	q *berthv1.ClaimForScaleDownRequest) (*berthv1.ClaimForScaleDownAnswer, error) {
	return &berthv1.ClaimForScaleDownAnswer{RequestId: q.GetRequestId(), Executors: []*berthv1.IdleExecutor{
		{Id: "sim-2", Sku: q.GetSku(), Reason: "CLAIMED"}}}, nil
}

func (c *cluster) ListSkus(context.Context, *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &berthv1.ListSkusAnswer{Skus: sorted(c.skus)}, nil
}

func (c *cluster) GetSku(_ context.Context, q *berthv1.GetSkuRequest) (*berthv1.Sku, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return found(c.skus, q.GetName())
}

func (c *cluster) PutSku(_ context.Context, q *berthv1.PutSkuRequest) (*berthv1.Sku, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skus[q.GetSku().GetName()] = q.GetSku()
	return q.GetSku(), nil
}

func (c *cluster) DeleteSku(_ context.Context, q *berthv1.DeleteSkuRequest) (*berthv1.DeleteSkuAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.skus, q.GetName())
	return &berthv1.DeleteSkuAnswer{}, nil
}

func (c *cluster) ListPools(context.Context, *berthv1.ListPoolsRequest) (*berthv1.ListPoolsAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &berthv1.ListPoolsAnswer{Pools: sorted(c.pools)}, nil
}

func (c *cluster) GetPool(_ context.Context, q *berthv1.GetPoolRequest) (*berthv1.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return found(c.pools, q.GetName())
}

func (c *cluster) PutPool(_ context.Context, q *berthv1.PutPoolRequest) (*berthv1.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[q.GetPool().GetName()] = q.GetPool()
	return q.GetPool(), nil
}

func (c *cluster) DeletePool(_ context.Context, q *berthv1.DeletePoolRequest) (*berthv1.DeletePoolAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, q.GetName())
	return &berthv1.DeletePoolAnswer{}, nil
}

// sorted returns the entries of a catalog by name.
func sorted[T any](entries map[string]T) (list []T) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		list = append(list, entries[name])
	}
	return list
}

func found[T any](entries map[string]T, name string) (T, error) {
	entry, ok := entries[name]
	if !ok {
		return entry, status.Errorf(codes.NotFound, "the catalog has no %s", name)
	}
	return entry, nil
}

func (c *cluster) GetUsage(context.Context, *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error) {
	return &berthv1.GetUsageAnswer{Skus: []*berthv1.SkuUsage{{Sku: "sim", Total: 3, Idle: 1, Running: 2,
		PendingExecutors: 4, WantedSize: 6}}}, nil
}

func (c *cluster) ListFindings(context.Context, *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
	return &berthv1.ListFindingsAnswer{Findings: []*berthv1.Finding{{Kind: "QUARANTINED", Object: "train/gpu/0.1",
		Message: "the executor host-0 does not confirm the stop"}}}, nil
}

func (c *cluster) ListLeaders(context.Context, *berthv1.ListLeadersRequest) (*berthv1.ListLeadersAnswer, error) {
	answer := &berthv1.ListLeadersAnswer{}
	for _, service := range []string{"registry", "executor-state", "assigner"} {
		answer.Services = append(answer.Services, &berthv1.ServiceLeadership{Service: service, Leader: service + "-0",
			Term: 7})
	}
	return answer, nil
}

func (c *cluster) Resign(_ context.Context, q *berthv1.ResignRequest) (*berthv1.ResignAnswer, error) {
	return &berthv1.ResignAnswer{Service: q.GetService(), Replica: q.GetService() + "-0", Term: q.GetTerm()}, nil
}

func (c *cluster) GetCaller(context.Context, *berthv1.GetCallerRequest) (*berthv1.Caller, error) {
	return &berthv1.Caller{Identity: "berth://default/operator/alice", Role: "operator", Name: "alice",
		Methods: []string{"berth.v1.Leaders/Resign"}}, nil
}

func (c *cluster) ListAuditEntries(context.Context,
	*berthv1.ListAuditEntriesRequest) (*berthv1.ListAuditEntriesAnswer, error) {
	return &berthv1.ListAuditEntriesAnswer{Entries: []*berthv1.AuditEntry{{Caller: "berth://default/operator/alice",
		Method: "berth.v1.Executors/DrainExecutor", Object: "host-1", Outcome: "OK"}}}, nil
}

func (c *cluster) ListTenants(context.Context, *berthv1.ListTenantsRequest) (*berthv1.ListTenantsAnswer, error) {
	return &berthv1.ListTenantsAnswer{Tenants: []*berthv1.Tenant{{Name: "train",
		Limits: &berthv1.TenantLimits{Workers: 4000}, Use: &berthv1.TenantUse{Workers: 12}}}}, nil
}

func (c *cluster) ExplainReservation(context.Context,
	*berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
	return &berthv1.Explanation{Position: 1, Queued: 1, Needed: 12, Fitting: 8, Missing: 4,
		Message: "12 needed, 8 fit now", Checks: []*berthv1.FailedCheck{
			{Check: "free.slots", Want: "1", Have: "0", Count: 8}}}, nil
}
