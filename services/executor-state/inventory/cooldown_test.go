package inventory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/policy"
	"berth.dev/services/executor-state/usage"
	_ "berth.dev/testkit/fixedseed"
)

// cooling is a world in which the usage is read after every action. It remembers when
// spare executors were needed, by SKU.
type cooling struct {
	*world
	rules  map[string]*model.ScaleRule
	needed map[string]time.Time
}

// putRule replaces the scale rule of a SKU.
func (w *cooling) putRule() {
	name := anySKU.Draw(w.t, "sku")
	rule := &model.ScaleRule{
		MinIdle: rapid.Int32Range(0, 2).Draw(w.t, "minIdle"), MinSize: evenly[int32](0, 0, 4).Draw(w.t, "minSize"),
		Cooldown: evenly(0, time.Minute, 10*time.Minute).Draw(w.t, "cooldown"),
	}
	if rapid.Bool().Draw(w.t, "maxIdle?") {
		most := rule.MinIdle + rapid.Int32Range(0, 2).Draw(w.t, "maxIdle")
		rule.MaxIdle = &most
	}
	if evenly(false, false, true).Draw(w.t, "hold?") {
		rule.HoldUntil = w.now.Add(time.Duration(rapid.IntRange(-30, 300).Draw(w.t, "hold")) * time.Second)
	}
	sku := model.SKU{Name: name, Resources: resource.Vector{"cpu": 1000, "slots": 2}, Scale: rule}
	if _, err := w.do(PutSKU{sku}); err != nil {
		w.t.Fatal(err)
	}
	w.rules[strings.ToLower(name)] = rule
}

// claimOne claims an executor. The claim is refused exactly while the SKU is held or unknown.
func (w *cooling) claimOne() {
	name := anySKU.Draw(w.t, "sku")
	_, err := w.do(policy.Claim{RequestID: fmt.Sprintf("c%d", w.token), SKU: name, Max: 1})
	if fault.Is(err, fault.ReasonNotFound) {
		u, _ := w.core.Usage(w.now, "")
		if slices.ContainsFunc(u.SKUs, func(row usage.SKUUsage) bool { return strings.EqualFold(row.SKU, name) }) {
			w.t.Fatalf("a claim for the known SKU %s: %v", name, err)
		}
		return
	}
	held := w.rules[strings.ToLower(name)].Held(w.now)
	if held != (err != nil) || held && fault.Of(err).Reason != fault.ReasonScalingHeld {
		w.t.Fatalf("held %v: %v", held, err)
	}
}

// read reads the usage and compares the advice with the rules.
func (w *cooling) read() {
	u, err := w.core.Usage(w.now, "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, row := range u.SKUs {
		name := strings.ToLower(row.SKU)
		rule, total := w.rules[name], int64(row.Total)
		if rule == nil || rule.MaxIdle == nil || int64(row.Idle)-row.PendingExecutors <= int64(*rule.MaxIdle) {
			w.needed[name] = w.now
		}
		plain := usage.Wanted(rule, total, int64(row.Idle), row.PendingExecutors)
		switch {
		case rule.Held(w.now):
			if row.WantedSize != total || row.WantedReason != fault.ReasonScalingHeld {
				w.t.Fatalf("%+v by %+v is not held", row, rule)
			}
		case plain < total && w.now.Before(w.needed[name].Add(rule.Cooldown)):
			if row.WantedSize != total || row.WantedReason != fault.ReasonCooldown {
				w.t.Fatalf("%+v by %+v at %v, needed at %v", row, rule, w.now, w.needed[name])
			}
		case row.WantedReason == fault.ReasonCooldown: // needed since then, for less time than between two reads
			if row.WantedSize != total || plain >= total || rule.Cooldown == 0 {
				w.t.Fatalf("%+v by %+v: %d without a cooldown", row, rule, plain)
			}
		case row.WantedSize != plain || row.WantedReason == fault.ReasonScalingHeld || row.WantedMessage == "":
			w.t.Fatalf("%+v by %+v: want %d", row, rule, plain)
		}
	}
}

// The advice never falls during the cooldown and never changes the size during a hold,
// whatever happens. After the cooldown it is the advice of the bounds.
func TestAdviceWaitsForCooldownAndHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &cooling{
			world: &world{rig: lead(DefaultConfig()), t: t, used: map[string]resource.Vector{}},
			rules: map[string]*model.ScaleRule{}, needed: map[string]time.Time{},
		}
		w.apply(&model.Ready{Since: start})
		failOver := func() {
			w.failOver()
			for name := range w.needed {
				w.needed[name] = w.now
			}
		}
		pause := func() { w.pause(time.Duration(rapid.IntRange(1, 300).Draw(t, "s")) * time.Second) }
		actions := []func(){
			w.register, w.register, w.announce, w.announce, w.announce, w.enqueue, w.offer, w.cancel, w.assign, w.endWorkers,
			w.putRule, w.putRule, w.claimOne, failOver, pause, pause, pause,
		}
		for range evenly(20, 60).Draw(t, "steps") {
			evenly(actions...).Draw(t, "action")()
			w.settle()
			w.catchUp()
			w.settle()
			w.read()
		}
		w.pause(2 * 24 * time.Hour) // until claims and absences have ended
		w.read()
		w.pause(10 * time.Minute)
		u, err := w.core.Usage(w.now, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range u.SKUs {
			rule := w.rules[strings.ToLower(row.SKU)]
			if plain := usage.Wanted(rule, int64(row.Total), int64(row.Idle), row.PendingExecutors); row.WantedSize != plain {
				t.Fatalf("%+v by %+v after the cooldown: want %d", row, rule, plain)
			}
		}
	})
}

// A standby does not see for which demand the leader needed spare executors, so it starts
// the cooldown when it is elected.
func TestNewLeaderStartsTheCooldown(t *testing.T) {
	r := lead(DefaultConfig())
	r.apply(&model.Ready{Since: start})
	for _, id := range []string{"h1", "h2", "h3"} {
		r.ready(small(id, 1000, 1))
	}
	none := int32(0)
	must[model.SKU](t, r, PutSKU{model.SKU{Name: "small", Resources: resource.Vector{"cpu": 1000},
		Scale: &model.ScaleRule{MaxIdle: &none, Cooldown: time.Minute}}})
	r.follow()
	r.now = r.now.Add(time.Hour) // the leader needs all executors, and the standby does not see that
	r.elect()
	for _, want := range []int64{3, 0} {
		u, err := r.core.Usage(r.now, "small")
		if err != nil || u.SKUs[0].WantedSize != want {
			t.Errorf("want %d, got %+v, %v", want, u.SKUs, err)
		}
		r.now = r.now.Add(time.Minute)
	}
}
