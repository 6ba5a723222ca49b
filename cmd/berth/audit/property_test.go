package audit

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	_ "berth.dev/testkit/fixedseed"
)

// TestOrderAgainstModel plays random requests, reorderings, ends and grants. It compares
// the result with a model that stores the queue of every revision.
func TestOrderAgainstModel(t *testing.T) {
	broken := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		states := map[int64]map[string]*model.Reservation{}
		queue := map[string]*model.Reservation{} // the current queue without granted reservations
		epochs := map[string]int64{}
		want, late, latest := 0, 0, int64(0)
		remember := func() {
			now := map[string]*model.Reservation{}
			for uid, r := range queue {
				known := *r
				known.Epoch = epochs[uid]
				now[uid] = &known
			}
			states[w.revision] = now
		}
		remember()
		first := w.revision
		priority := rapid.SampledFrom([]int64{-1, -1, -1, 0, 2, 1_000_000}) // -1 means no order
		change := func(r *model.Reservation, order int64) *model.Reservation {
			next := *r
			next.Spec.Priority.Order = nil
			if order >= 0 {
				next.Spec.Priority.Order = &order
			}
			return &next
		}
		for place := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			var uids []string
			for i := range place {
				if uid := fmt.Sprint("r", i); queue[uid] != nil {
					uids = append(uids, uid)
				}
			}
			act := rapid.IntRange(0, 4).Draw(rt, "act")
			if len(uids) == 0 || act < 2 {
				r := reservation(fmt.Sprint("r", place), int64(place+1), 1)
				r.Spec.Constraints.Resources = resource.Vector{"slots": 0} // always fits
				r = change(r, priority.Draw(rt, "order"))
				epochs[r.UID] = w.put(r)
				queue[r.UID] = r
				remember()
				continue
			}
			uid := rapid.SampledFrom(uids).Draw(rt, "uid")
			switch act {
			case 2:
				queue[uid] = change(queue[uid], priority.Draw(rt, "order"))
				w.put(queue[uid])
			case 3:
				w.put(in(queue[uid], model.Cancelled))
				delete(queue, uid)
			case 4:
				cut := rapid.Int64Range(first, w.revision).Draw(rt, "cut")
				granted := []model.Record{lease(queue[uid], epochs[uid], cut, 1)}
				other := rapid.SampledFrom(uids).Draw(rt, "other")
				if other != uid {
					granted = append(granted, lease(queue[other], epochs[other], cut, 1))
				}
				w.put(granted...)
				if cut < latest {
					late += len(granted)
				}
				latest = max(latest, cut)
				delete(queue, uid)
				delete(queue, other)
				for _, record := range granted {
					if overtaken(states[cut], queue, record.(*model.LeaseChunk).UID) {
						want++
					}
				}
			}
			remember()
		}
		a := w.audit()
		broken += want
		got := map[Rule]int{}
		for _, v := range a.Violations() {
			got[v.Rule]++
		}
		if got[RuleOrder] != want || got[RuleCycle] != late || a.Count() != want+late {
			rt.Fatalf("%d grants broke the order and %d were of earlier cycles: %v", want, late, a.Violations())
		}
	})
	if broken == 0 {
		t.Error("no history broke the order")
	}
}

// overtaken reports whether a reservation that was before uid is still queued. If uid did
// not exist, all reservations were before it.
func overtaken(then, now map[string]*model.Reservation, uid string) bool {
	mine := then[uid]
	if mine == nil {
		return true
	}
	for other, r := range then {
		if now[other] != nil && rankOf(r).compare(rankOf(mine)) < 0 {
			return true
		}
	}
	return false
}
