package usage

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
	_ "berth.dev/testkit/fixedseed"
)

func bound(n int32) *int32 { return &n }

func TestWantedSizes(t *testing.T) {
	for _, c := range []struct {
		why                  string
		rule                 *model.ScaleRule
		total, idle, pending int64
		want                 int64
	}{
		{"no rule", nil, 7, 0, 9, 7},
		{"enough idle", &model.ScaleRule{MinIdle: 2, MaxIdle: bound(4)}, 10, 3, 0, 10},
		{"too few idle", &model.ScaleRule{MinIdle: 2}, 10, 1, 0, 11},
		{"all idle executors needed by pending demand", &model.ScaleRule{MinIdle: 2}, 10, 3, 5, 14},
		{"pending demand without a minimum", &model.ScaleRule{}, 10, 1, 4, 13},
		{"no executors yet", &model.ScaleRule{MinIdle: 1}, 0, 0, 3, 4},
		{"too many idle", &model.ScaleRule{MaxIdle: bound(2)}, 10, 6, 1, 7},
		{"no idle executors allowed", &model.ScaleRule{MaxIdle: bound(0)}, 10, 10, 0, 0},
		{"no upper bound", &model.ScaleRule{}, 10, 10, 0, 10},
		{"more, up to the maximum", &model.ScaleRule{MinIdle: 5, MaxSize: bound(12)}, 10, 0, 9, 12},
		{"more is never fewer", &model.ScaleRule{MinIdle: 5, MaxSize: bound(8)}, 10, 0, 9, 10},
		{"fewer, down to the minimum", &model.ScaleRule{MaxIdle: bound(1), MinSize: 8}, 10, 9, 0, 8},
		{"too many idle, and fewer than the minimum", &model.ScaleRule{MaxIdle: bound(1), MinSize: 20}, 10, 9, 0, 20},
		{"all idle, at the minimum", &model.ScaleRule{MaxIdle: bound(1), MinSize: 10}, 10, 10, 0, 10},
		{"fewer, and over the maximum", &model.ScaleRule{MaxIdle: bound(1), MaxSize: bound(5)}, 10, 2, 0, 5},
		{"less than the minimum", &model.ScaleRule{MinSize: 12}, 10, 1, 0, 12},
		{"over the maximum, and all busy", &model.ScaleRule{MaxSize: bound(5)}, 10, 0, 0, 10},
	} {
		if got := Wanted(c.rule, c.total, c.idle, c.pending); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, got, c.want)
		}
	}
}

func TestAdviceNamesItsReason(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC)
	for _, c := range []struct {
		rule                 *model.ScaleRule
		total, idle, pending int64
		want                 Advice
	}{
		{nil, 7, 0, 9, Advice{7, "NO_SCALE_RULE", "the SKU has no scale rule"}},
		{&model.ScaleRule{MinIdle: 2}, 10, 1, 3, Advice{14, "TOO_FEW_IDLE", "spare executors: -2, minIdle: 2"}},
		{&model.ScaleRule{}, 10, 9, 0, Advice{10, "IDLE_IN_RANGE", "spare executors: 9, minIdle: 0, no maxIdle"}},
		{&model.ScaleRule{MinIdle: 1, MaxIdle: bound(4)}, 10, 4, 0,
			Advice{10, "IDLE_IN_RANGE", "spare executors: 4, minIdle: 1, maxIdle: 4"}},
		{&model.ScaleRule{MaxIdle: bound(2)}, 10, 6, 1, Advice{7, "TOO_MANY_IDLE", "spare executors: 5, maxIdle: 2"}},
		{&model.ScaleRule{MaxIdle: bound(2), MinSize: 8}, 10, 6, 0,
			Advice{8, "MIN_SIZE", "spare executors: 6, maxIdle: 2; minSize: 8"}},
		{&model.ScaleRule{MinIdle: 5, MaxSize: bound(12)}, 10, 0, 0,
			Advice{12, "MAX_SIZE", "spare executors: 0, minIdle: 5; maxSize: 12"}},
		{&model.ScaleRule{MaxIdle: bound(2), Cooldown: time.Minute}, 10, 6, 0, Advice{10, "COOLDOWN",
			"spare executors: 6, maxIdle: 2; the wanted size does not fall before 2026-03-01T12:01:01Z (cooldown: 1m0s)"}},
		{&model.ScaleRule{MinIdle: 2, Cooldown: time.Minute}, 10, 0, 0,
			Advice{12, "TOO_FEW_IDLE", "spare executors: 0, minIdle: 2"}},
		{&model.ScaleRule{MaxIdle: bound(2), MinSize: 8, HoldUntil: noon.Add(time.Hour)}, 10, 6, 0, Advice{10, "SCALING_HELD",
			"scaling is held until 2026-03-01T13:00:01Z; without the hold, the wanted size is 8"}},
	} {
		if got := Advise(c.rule, noon, noon, c.total, c.idle, c.pending); got != c.want {
			t.Errorf("got  %+v\nwant %+v", got, c.want)
		}
	}
}

func drawRule(t *rapid.T) *model.ScaleRule {
	rule := &model.ScaleRule{MinIdle: rapid.Int32Range(0, 9).Draw(t, "minIdle"),
		MinSize: rapid.Int32Range(0, 20).Draw(t, "minSize")}
	if rapid.Bool().Draw(t, "maxIdle?") {
		rule.MaxIdle = bound(rule.MinIdle + rapid.Int32Range(0, 9).Draw(t, "maxIdle"))
	}
	if rapid.Bool().Draw(t, "maxSize?") {
		rule.MaxSize = bound(rule.MinSize + rapid.Int32Range(0, 20).Draw(t, "maxSize"))
	}
	return rule
}

// If more executors are needed than maxSize allows, and more than maxSize already exist,
// the recommendation does not shrink the fleet.
func TestPitfallScaleClampsKeepTheSign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := drawRule(t)
		total := rapid.Int64Range(0, 40).Draw(t, "total")
		idle := rapid.Int64Range(0, total).Draw(t, "idle")
		pending := rapid.Int64Range(0, 40).Draw(t, "pending")
		want := Wanted(rule, total, idle, pending)
		if a := Advise(rule, time.Time{}, time.Time{}, total, idle, pending); a.WantedSize != want {
			t.Fatalf("%+v, want %d", a, want)
		}
		spare := idle - pending
		switch {
		case spare < int64(rule.MinIdle) && want < total:
			t.Fatalf("up became down: %d of %d", want, total)
		case rule.MaxIdle != nil && spare > int64(*rule.MaxIdle) && want > max(total, int64(rule.MinSize)):
			t.Fatalf("down became up: %d of %d", want, total)
		case want > total && rule.MaxSize != nil && want > int64(*rule.MaxSize):
			t.Fatalf("above the maximum: %d", want)
		case want < int64(rule.MinSize):
			t.Fatalf("below the minimum: %d", want)
		}
	})
}

// The recommended size is the same before and after pending demand is placed.
func TestWantedSizeIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := drawRule(t)
		total := rapid.Int64Range(0, 40).Draw(t, "total")
		idle := rapid.Int64Range(0, total).Draw(t, "idle")
		pending := rapid.Int64Range(0, 40).Draw(t, "pending")
		before := Wanted(rule, total, idle, pending)
		placed := rapid.Int64Range(0, min(idle, pending)).Draw(t, "placed")
		if after := Wanted(rule, total, idle-placed, pending-placed); after != before {
			t.Fatalf("%d wanted before %d were placed, %d after", before, placed, after)
		}
		if more := before - total; more > 0 {
			if after := Wanted(rule, before, idle+more, pending); after != before {
				t.Fatalf("%d wanted, and with those %d", before, after)
			}
		}
	})
}
