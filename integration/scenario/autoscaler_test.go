package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/examples/autoscaler"
)

// fakeCloud is an instance group whose hosts are processes of agents.
type fakeCloud struct {
	*world
	// hosts has the hosts by name: false until boot starts the agent.
	hosts map[string]bool
	// started and removed count the hosts.
	started, removed int
}

func (c *fakeCloud) Hosts(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(c.hosts)), nil
}

func (c *fakeCloud) Grow(_ context.Context, n int) error {
	for range n {
		c.hosts[fmt.Sprintf("host-%d", c.started)] = false
		c.started++
	}
	return nil
}

func (c *fakeCloud) Remove(ctx context.Context, hosts []string) error {
	for _, host := range hosts {
		if !c.hosts[host] {
			return fmt.Errorf("host %s does not run", host)
		}
		if err := c.fleet.Agent(host).Stop(ctx); err != nil {
			return err
		}
		delete(c.hosts, host)
		c.removed++
	}
	return nil
}

// boot starts the agents of all hosts.
func (c *fakeCloud) boot() {
	c.Helper()
	for host, runs := range c.hosts {
		if !runs {
			c.startAgents(fleet.Agent{ID: host, SKU: "auto", Slots: 1})
			c.hosts[host] = true
		}
	}
}

// TestAutoscaler runs the example against a cloud whose hosts take long to start.
func TestAutoscaler(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	cloud := &fakeCloud{world: w, hosts: map[string]bool{}}
	one := int32(1)
	rule := &berthv1.ScaleRule{MinIdle: 1, MaxIdle: &one}
	put := func() {
		t.Helper()
		sku := &berthv1.Sku{Name: "auto", Resources: map[string]int64{"slots": 1}, Scale: rule}
		if _, err := w.client.PutSKU(w.ctx, sku); err != nil {
			t.Fatal(err)
		}
	}
	put()
	step := func() {
		t.Helper()
		if err := autoscaler.Step(w.ctx, w.client, "auto", cloud); err != nil {
			t.Fatal(err)
		}
	}
	gang := func(stage string, n int) *berthv1.Reservation {
		r := shell("scaled", stage, n, "sleep 3600")
		r.Constraints = &berthv1.Constraints{Sku: "auto"}
		return w.upsert(r)
	}

	// The gang needs three hosts, and the rule one more. While they start, the autoscaler
	// starts no others.
	first := gang("first", 3)
	until(t, func() string { // usage follows the reservation
		step()
		return expect("started", cloud.started, 4)
	})
	step()
	if missing := expect("started", cloud.started, 4); missing != "" {
		t.Error(missing)
	}
	cloud.boot()
	w.awaitRunning(first, 3)
	step()

	// The gang ends. Nothing is removed during a hold, and then in the cooldown.
	rule.HoldUntil = timestamppb.New(time.Now().Add(time.Hour))
	put()
	w.cancel(first)
	w.await(first, berthv1.Reservation_CANCELLED)
	keeps := func(reason fault.Reason) {
		t.Helper()
		until(t, func() string { // usage follows the end of the gang
			usage, err := w.client.Usage(w.ctx, "auto")
			if err != nil {
				t.Fatal(err)
			}
			if row := usage.GetSkus()[0]; row.GetIdle() != 4 || row.GetWantedReason() != string(reason) {
				return row.String()
			}
			return ""
		})
		step()
		if missing := expect("removed", cloud.removed, 0); missing != "" {
			t.Error(missing)
		}
	}
	keeps(fault.ReasonScalingHeld)
	if _, err := w.client.ClaimForScaleDown(w.ctx, &berthv1.ClaimForScaleDownRequest{Sku: "auto",
		Max: 1}); !fault.Is(err, fault.ReasonScalingHeld) {
		t.Errorf("claimed during the hold: %v", err)
	}
	rule.HoldUntil, rule.Cooldown = nil, durationpb.New(time.Hour)
	put()
	keeps(fault.ReasonCooldown)

	// Without both, all hosts but one are removed, none of which had a worker then.
	rule.Cooldown = nil
	put()
	until(t, func() string {
		step()
		return expect("removed", cloud.removed, 3)
	})

	// The removed hosts still count until they are LOST, but new demand starts new hosts, and
	// only once.
	gang("second", 2)
	until(t, func() string {
		step()
		return expect("started", cloud.started, 6)
	})
	step()
	if missing := expect("started", cloud.started, 6); missing != "" {
		t.Error(missing)
	}
}

func expect(what string, got, want int) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s: %d hosts, want %d", what, got, want)
}
