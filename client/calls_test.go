package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Every call sends its request and returns the answer. A repeated call has the same request
// ID, if the request has one.
func TestCalls(t *testing.T) {
	moment := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	workerID := &berthv1.WorkerID{Index: 2, Number: 1}
	sku, pool := &berthv1.Sku{Name: "small"}, &berthv1.Pool{Name: "night"}
	for _, c := range []struct {
		method  string
		request proto.Message // without its request ID
		answer  proto.Message
		call    func(ctx context.Context, c *Client) (any, error)
		want    any // by default the answer itself
	}{
		{
			"CancelWorkers", &berthv1.CancelWorkersRequest{Job: "j", Stage: "s", Workers: []*berthv1.WorkerID{workerID}},
			&berthv1.CancelWorkersAnswer{Cancelled: 1},
			func(ctx context.Context, c *Client) (any, error) { return c.CancelWorkers(ctx, "j", "s", workerID) }, 1,
		},
		{
			"FlushReservations", &berthv1.FlushReservationsRequest{Job: "j"}, &berthv1.CancelAnswer{Cancelled: 3},
			func(ctx context.Context, c *Client) (any, error) { return c.FlushJob(ctx, "j") }, 3,
		},
		{
			"FlushReservations", &berthv1.FlushReservationsRequest{Group: "g"}, &berthv1.CancelAnswer{Cancelled: 3},
			func(ctx context.Context, c *Client) (any, error) { return c.FlushGroup(ctx, "g") }, 3,
		},
		{
			"MarkReady", &berthv1.MarkReadyRequest{}, &berthv1.MarkReadyAnswer{ReadySince: timestamppb.New(moment)},
			func(ctx context.Context, c *Client) (any, error) { return c.MarkReady(ctx) }, moment,
		},
		{
			"ListPending", &berthv1.ListPendingRequest{PageSize: 1000}, &berthv1.ListPendingAnswer{Ready: true},
			func(ctx context.Context, c *Client) (any, error) { return c.Pending(ctx) }, nil,
		},
		{
			"GetPendingHistory", &berthv1.GetPendingHistoryRequest{}, &berthv1.GetPendingHistoryAnswer{
				Points: []*berthv1.PendingPoint{{Workers: 3}}},
			func(ctx context.Context, c *Client) (any, error) { return c.PendingHistory(ctx) }, nil,
		},
		{
			"ExplainReservation", &berthv1.ExplainReservationRequest{Job: "j", Stage: "s", Name: "main"},
			&berthv1.Explanation{Group: "g"},
			func(ctx context.Context, c *Client) (any, error) { return c.Explain(ctx, Key{Job: "j", Stage: "s"}) }, nil,
		},
		{
			"GetUsage", &berthv1.GetUsageRequest{Sku: "small"}, &berthv1.GetUsageAnswer{Revision: 9},
			func(ctx context.Context, c *Client) (any, error) { return c.Usage(ctx, "small") }, nil,
		},
		{
			"ListIdleExecutors", &berthv1.ListIdleExecutorsRequest{Max: 3}, &berthv1.ListIdleExecutorsAnswer{Revision: 9},
			func(ctx context.Context, c *Client) (any, error) {
				return c.Idle(ctx, &berthv1.ListIdleExecutorsRequest{Max: 3})
			}, nil,
		},
		{
			"ClaimForScaleDown", &berthv1.ClaimForScaleDownRequest{Sku: "small", Max: 3},
			&berthv1.ClaimForScaleDownAnswer{Executors: []*berthv1.IdleExecutor{{Id: "e"}}},
			func(ctx context.Context, c *Client) (any, error) {
				return c.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{Sku: "small", Max: 3})
			}, nil,
		},
		{
			"ListFindings", &berthv1.ListFindingsRequest{},
			&berthv1.ListFindingsAnswer{Findings: []*berthv1.Finding{{Kind: "MASS_LOSS"}}},
			func(ctx context.Context, c *Client) (any, error) { return c.Findings(ctx) }, nil,
		},
		{
			"DisableExecutors", &berthv1.DisableExecutorsRequest{Reason: "patch"}, &berthv1.DisableExecutorsAnswer{Executors: 2},
			func(ctx context.Context, c *Client) (any, error) {
				return c.Disable(ctx, &berthv1.DisableExecutorsRequest{Reason: "patch"})
			}, nil,
		},
		{
			"EnableExecutors", &berthv1.EnableExecutorsRequest{DisableRequestId: "d"}, &berthv1.EnableExecutorsAnswer{Undone: 2},
			func(ctx context.Context, c *Client) (any, error) {
				return c.Enable(ctx, &berthv1.EnableExecutorsRequest{DisableRequestId: "d"})
			}, 2,
		},
		{
			"DrainExecutor", &berthv1.DrainExecutorRequest{Id: "e", Reason: "patch"}, &berthv1.Executor{Id: "e", Workers: 3},
			func(ctx context.Context, c *Client) (any, error) {
				return c.Drain(ctx, &berthv1.DrainExecutorRequest{Id: "e", Reason: "patch"})
			}, nil,
		},
		{
			"SignalWorkers", &berthv1.SignalWorkersRequest{Job: "j", Stage: "s", Signal: "USR1",
				Workers: []*berthv1.WorkerID{{Index: 2}}}, &berthv1.SignalWorkersAnswer{Signalled: 1},
			func(ctx context.Context, c *Client) (any, error) {
				return c.SignalWorkers(ctx, &berthv1.SignalWorkersRequest{Job: "j", Stage: "s", Signal: "USR1",
					Workers: []*berthv1.WorkerID{{Index: 2}}})
			}, nil,
		},
		{
			"ClearQuarantine", &berthv1.ClearQuarantineRequest{
				Executor: "e", Workers: []*berthv1.AssignedWorker{{Job: "j", Stage: "s", Index: 2, Number: 1, Epoch: 7}},
			}, &berthv1.ClearQuarantineAnswer{Cleared: 1},
			func(ctx context.Context, c *Client) (any, error) {
				return c.ClearQuarantine(ctx, "e", &berthv1.Assignment{Job: "j", Stage: "s", Index: 2, Number: 1, Epoch: 7,
					Attempts: 3})
			}, 1,
		},
		{
			"ListSkus", &berthv1.ListSkusRequest{}, &berthv1.ListSkusAnswer{Skus: []*berthv1.Sku{sku}},
			func(ctx context.Context, c *Client) (any, error) { return c.SKUs(ctx) }, nil,
		},
		{
			"GetSku", &berthv1.GetSkuRequest{Name: "small"}, sku,
			func(ctx context.Context, c *Client) (any, error) { return c.SKU(ctx, "small") }, nil,
		},
		{
			"PutSku", &berthv1.PutSkuRequest{Sku: sku}, sku,
			func(ctx context.Context, c *Client) (any, error) { return c.PutSKU(ctx, sku) }, nil,
		},
		{
			"DeleteSku", &berthv1.DeleteSkuRequest{Name: "small"}, &berthv1.DeleteSkuAnswer{},
			func(ctx context.Context, c *Client) (any, error) { return true, c.DeleteSKU(ctx, "small") }, true,
		},
		{
			"DeleteVolumes", &berthv1.DeleteVolumesRequest{Ids: []string{"a", "b"}, Executor: "e"},
			&berthv1.DeleteVolumesAnswer{Count: 2},
			func(ctx context.Context, c *Client) (any, error) {
				return c.DeleteVolumes(ctx, &berthv1.DeleteVolumesRequest{Ids: []string{"a", "b"}, Executor: "e"})
			}, 2,
		},
		{
			"AbandonVolumes", &berthv1.AbandonVolumesRequest{Ids: []string{"a", "b"}},
			&berthv1.AbandonVolumesAnswer{Count: 2},
			func(ctx context.Context, c *Client) (any, error) { return c.AbandonVolumes(ctx, "a", "b") }, 2,
		},
		{
			"ListTenants", &berthv1.ListTenantsRequest{},
			&berthv1.ListTenantsAnswer{Tenants: []*berthv1.Tenant{{Name: "train", Prefix: "train"}}},
			func(ctx context.Context, c *Client) (any, error) { return c.Tenants(ctx) }, nil,
		},
		{
			"GetCaller", &berthv1.GetCallerRequest{}, &berthv1.Caller{Identity: "berth://default/viewer/bob"},
			func(ctx context.Context, c *Client) (any, error) { return c.Caller(ctx) }, nil,
		},
		{
			"ListAuditEntries", &berthv1.ListAuditEntriesRequest{PageSize: 9, PageToken: "t"},
			&berthv1.ListAuditEntriesAnswer{Entries: []*berthv1.AuditEntry{{Outcome: "OK"}}, Gateway: "g"},
			func(ctx context.Context, c *Client) (any, error) {
				return c.AuditEntriesPage(ctx, &berthv1.ListAuditEntriesRequest{PageSize: 9, PageToken: "t"})
			}, nil,
		},
		{
			"ListPools", &berthv1.ListPoolsRequest{}, &berthv1.ListPoolsAnswer{Pools: []*berthv1.Pool{pool}},
			func(ctx context.Context, c *Client) (any, error) { return c.Pools(ctx) }, nil,
		},
		{
			"GetPool", &berthv1.GetPoolRequest{Name: "night"}, pool,
			func(ctx context.Context, c *Client) (any, error) { return c.Pool(ctx, "night") }, nil,
		},
		{
			"PutPool", &berthv1.PutPoolRequest{Pool: pool}, pool,
			func(ctx context.Context, c *Client) (any, error) { return c.PutPool(ctx, pool) }, nil,
		},
		{
			"DeletePool", &berthv1.DeletePoolRequest{Name: "night"}, &berthv1.DeletePoolAnswer{},
			func(ctx context.Context, c *Client) (any, error) { return true, c.DeletePool(ctx, "night") }, true,
		},
	} {
		t.Run(c.method, func(t *testing.T) {
			var ids []string
			g := &gateway{any: func(method string, request proto.Message) (proto.Message, error) {
				ids = append(ids, takeID(request))
				if diff := cmp.Diff(c.request, request, protocmp.Transform()); method != c.method || diff != "" {
					t.Errorf("%s received, -want +got:\n%s", method, diff)
				}
				if len(ids) == 1 {
					return nil, unavailable()
				}
				return c.answer, nil
			}}
			g.serve(t, hold(t))
			want := c.want
			if want == nil {
				want = c.answer
			}
			got, err := c.call(limited(t, time.Minute), dial(t, nil, g))
			if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
			named := c.request.ProtoReflect().Descriptor().Fields().ByName("request_id") != nil
			if len(ids) != 2 || ids[0] != ids[1] || named != (ids[0] != "") {
				t.Errorf("request ids %q", ids)
			}
		})
	}
}

// takeID removes the request ID from a request and returns it. If the request has no such
// field, takeID returns an empty string.
func takeID(m proto.Message) string {
	r := m.ProtoReflect()
	field := r.Descriptor().Fields().ByName("request_id")
	if field == nil {
		return ""
	}
	defer r.Set(field, protoreflect.ValueOfString(""))
	return r.Get(field).String()
}

// If the caller sets a request ID, the client sends it and does not change the caller's
// message.
func TestOwnRequestIDs(t *testing.T) {
	var ids []string
	g := &gateway{any: func(method string, request proto.Message) (proto.Message, error) {
		ids = append(ids, takeID(request))
		return nil, errors.New("enough")
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	ctx := limited(t, time.Minute)
	own := &berthv1.DisableExecutorsRequest{RequestId: "mine"}
	c.Disable(ctx, own)                                                            //nolint:errcheck // only the IDs are of interest
	c.Enable(ctx, &berthv1.EnableExecutorsRequest{RequestId: "mine"})              //nolint:errcheck // only the IDs are of interest
	c.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{RequestId: "mine"}) //nolint:errcheck // only the IDs are of interest
	none := &berthv1.DisableExecutorsRequest{}
	c.Disable(ctx, none) //nolint:errcheck // only the IDs are of interest
	if len(ids) != 4 || ids[0] != "mine" || ids[1] != "mine" || ids[2] != "mine" || ids[3] == "" || ids[3] == "mine" {
		t.Errorf("request ids %q", ids)
	}
	if own.RequestId != "mine" || none.RequestId != "" {
		t.Errorf("the caller's messages were changed to %v, %v", own, none)
	}
}

// If the registry is not ready, the client returns that error at once, because the caller
// decides whether to wait.
func TestNotReadyIsAnAnswer(t *testing.T) {
	calls := 0
	g := &gateway{any: func(string, proto.Message) (proto.Message, error) {
		calls++
		return nil, fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "not yet")
	}}
	g.serve(t, hold(t))
	c := dial(t, nil, g)
	if _, err := c.Pending(limited(t, time.Minute)); !fault.Is(err, fault.ReasonRegistryNotReady) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
