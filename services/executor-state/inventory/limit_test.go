package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/policy"
)

// The number of new executors is limited, both in total and within a minute. A known
// executor may always register again.
func TestNewExecutorsAreBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxExecutors, cfg.MaxNewExecutors = 12, 6
	r := lead(cfg)
	starts := 0
	register := func(id string) error {
		starts++
		g := small(id, 1, 1)
		g.Address, g.Nonce = id+":1", fmt.Sprint("n", starts)
		_, err := r.do(g)
		return err
	}
	wants := func(err error, reason fault.Reason, text string) {
		t.Helper()
		if f := fault.Of(err); err == nil || f.Kind != fault.Exhausted || f.Reason != reason ||
			!strings.Contains(f.Message, text) {
			t.Errorf("%v, want %s with %q", err, reason, text)
		}
	}
	for i := range 6 {
		if err := register(fmt.Sprint("h", i)); err != nil {
			t.Fatal(err)
		}
	}
	wants(register("h6"), fault.ReasonOverloaded, "max-new-executors")
	for range 20 {
		if err := register("h0"); err != nil {
			t.Fatalf("repeated registration: %v", err)
		}
	}
	r.now = r.now.Add(10 * time.Second) // one sixth of a minute
	if err := register("h6"); err != nil {
		t.Error(err)
	}
	wants(register("h7"), fault.ReasonOverloaded, "max-new-executors")
	r.now = r.now.Add(time.Minute)
	for i := 7; i < 12; i++ {
		if err := register(fmt.Sprint("h", i)); err != nil {
			t.Fatal(err)
		}
	}
	r.now = r.now.Add(time.Hour)
	wants(register("h12"), fault.ReasonTooLarge, "max-executors")
	if err := register("h11"); err != nil {
		t.Errorf("repeated registration: %v", err)
	}
}

// The number of SKUs and pools is limited. An existing SKU or pool may always be changed.
func TestTheCatalogIsBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxCatalog = 2
	r := lead(cfg)
	sku := func(name string, cores int64) PutSKU {
		return PutSKU{model.SKU{Name: name, Resources: resource.Vector{"cpu": cores}}}
	}
	pool := func(name, zone string) policy.PutPool {
		return policy.PutPool{Pool: model.Pool{Name: name, Attributes: map[string]string{"zone": zone}}}
	}
	for _, request := range []any{sku("a", 1), sku("b", 1), pool("a", "x"), pool("b", "x"), sku("A", 2), pool("a", "y")} {
		if _, err := r.do(request); err != nil {
			t.Fatalf("%+v: %v", request, err)
		}
	}
	for _, request := range []any{sku("c", 1), pool("c", "x")} {
		_, err := r.do(request)
		if f := fault.Of(err); err == nil || f.Kind != fault.Exhausted || !strings.Contains(f.Message, "max-catalog") {
			t.Errorf("%+v: %v", request, err)
		}
	}
	must[SKUDeleted](t, r, DeleteSKU{Name: "b"})
	must[policy.PoolDeleted](t, r, policy.DeletePool{Name: "b"})
	for _, request := range []any{sku("c", 1), pool("c", "x")} {
		if _, err := r.do(request); err != nil {
			t.Errorf("%+v: %v", request, err)
		}
	}
}

// The core answers a request of an unknown type, so the caller does not wait forever.
func TestARequestOfAnUnknownTypeIsAnswered(t *testing.T) {
	actions := New(DefaultConfig()).Step(start, model.Input{Token: 7, Request: struct{}{}})
	if len(actions) != 1 {
		t.Fatalf("answered by %+v", actions)
	}
	if reply, is := actions[0].(model.Reply); !is || reply.Token != 7 || fault.Of(reply.Err).Kind != fault.Internal {
		t.Errorf("answered by %+v", actions[0])
	}
}
