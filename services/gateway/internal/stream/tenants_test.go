package stream_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/services/gateway/internal/stream"
	"berth.dev/testkit/rpctest"
)

// The limit of a tenant applies to the open streams of all its jobs, over HTTP and gRPC
// together, and to streams that were open before the tenants changed.
func TestStreamsAreLimitedPerTenant(t *testing.T) {
	limited := func(name, prefix string) *model.Tenants {
		return model.NewTenants([]model.Tenant{{Name: name, Prefix: prefix,
			Limits: model.TenantLimits{EventStreams: 2}}})
	}
	var tenants atomic.Pointer[model.Tenants]
	tenants.Store(limited("train", "train"))
	server := stream.NewServer(t.Context(), newMemory(1), stream.Options{Patience: time.Minute, Heartbeat: time.Minute,
		MaxStreams: 5, Tenants: tenants.Load})
	ended := make(chan struct{}, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/{job}/events", func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		ended <- struct{}{}
	})
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	calls := berthv1.NewEventsClient(rpctest.Serve(t,
		func(r grpc.ServiceRegistrar) { berthv1.RegisterEventsServer(r, server) }))
	open := func(job string) io.Closer {
		t.Helper()
		res, body := get(t, web.URL+"/v1/jobs/"+job+"/events")
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", job, res.Status)
		}
		line(t, body)
		return res.Body
	}
	refused := func(job, limit string) {
		t.Helper()
		s, err := calls.WatchEvents(t.Context(), &berthv1.WatchEventsRequest{Job: job})
		if err == nil {
			_, err = s.Recv()
		}
		if f := rpc.FromStatus(err); f.Kind != fault.Exhausted || f.Reason != fault.ReasonTenantLimit ||
			f.Meta["limit"] != limit || f.Meta["current"] != "2" || f.Meta["max"] != "2" {
			t.Errorf("%s: got %v", job, err)
		}
		res, body := get(t, web.URL+"/v1/jobs/"+job+"/events")
		<-ended
		if text, err := io.ReadAll(body); err != nil || res.StatusCode != http.StatusTooManyRequests ||
			!strings.Contains(string(text), "TENANT_LIMIT") || !strings.Contains(string(text), limit) {
			t.Errorf("%s: %s %s %v", job, res.Status, text, err)
		}
	}
	opened := func(want map[string]int) {
		t.Helper()
		got := server.OpenStreams()
		maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
		if !maps.Equal(got, want) {
			t.Errorf("open are %v, want %v", got, want)
		}
	}
	first := open("train")
	open("train-2")
	open("eval-1")
	opened(map[string]int{"train": 2})
	refused("train-3", "eventStreams")
	first.Close()
	<-ended
	open("train-3")
	refused("train-3", "eventStreams")
	opened(map[string]int{"train": 2})

	tenants.Store(limited("eval", "eval"))
	opened(map[string]int{"eval": 1})
	open("train")
	open("eval-1")
	refused("eval-1", "eventStreams")
	tenants.Store(nil)
	opened(map[string]int{})
	// Without tenants, only the limit of the gateway applies.
	res, _ := get(t, web.URL+"/v1/jobs/eval-1/events")
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("beyond the limit of the gateway: %s", res.Status)
	}
}

// Streams of package watch count together with streams of events.
func TestOtherStreamsCountToo(t *testing.T) {
	tenants := model.NewTenants([]model.Tenant{{Name: "train", Prefix: "train",
		Limits: model.TenantLimits{EventStreams: 1}}})
	server := stream.NewServer(t.Context(), newMemory(1), stream.Options{Patience: time.Minute, Heartbeat: time.Minute,
		MaxStreams: 2, Tenants: func() *model.Tenants { return tenants }})
	calls := berthv1.NewEventsClient(rpctest.Serve(t,
		func(r grpc.ServiceRegistrar) { berthv1.RegisterEventsServer(r, server) }))
	refused := func(job string, want fault.Reason) {
		t.Helper()
		s, err := calls.WatchEvents(t.Context(), &berthv1.WatchEventsRequest{Job: job})
		if err == nil {
			_, err = s.Recv()
		}
		if got := rpc.FromStatus(err).Reason; got != want {
			t.Errorf("%s: got %v, want %v", job, err, want)
		}
	}
	end, err := server.Admit("train")
	if err != nil {
		t.Fatal(err)
	}
	refused("train-1", fault.ReasonTenantLimit)
	if _, err := server.Admit(""); err != nil { // of a caller who is no job service
		t.Fatal(err)
	}
	refused("eval", fault.ReasonOverloaded)
	if got := server.OpenStreams(); got["train"] != 1 {
		t.Errorf("open are %v", got)
	}
	end(nil)
	if _, err := server.Admit("train"); err != nil {
		t.Error(err)
	}
}
