package audit

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// ofRole returns a reservation of n workers of a role.
func ofRole(uid string, place int64, n int32, role string) *model.Reservation {
	r := reservation(uid, place, n)
	r.Spec.Constraints.Role = role
	return r
}

// reserveShares returns host 1 with 4 slots, of which shares are reserved for roles.
func reserveShares(shares map[string]int64) *model.Executor {
	e := host(1, 4)
	e.Reserved = map[string]resource.Vector{}
	for role, slots := range shares {
		e.Reserved[role] = resource.Vector{"slots": slots}
	}
	return e
}

// TestSharesAllow plays a history without a violation. Workers of the role use its share
// and more, even if the case of the role's name differs. Some leases are older than a
// share.
func TestSharesAllow(t *testing.T) {
	w := newWorld(t)
	w.put(reserveShares(map[string]int64{"Web": 2}))
	anyone, web := reservation("anyone", 1, 1), ofRole("web", 2, 3, "web")
	l1 := w.run(anyone, 1)
	l2 := w.run(web, 1)
	wantRules(t, w.audit())

	// The agent registers again and reserves everything for a role without workers.
	w.put(reserveShares(map[string]int64{"batch": 4}))
	w.stop(web, l2)
	wantRules(t, w.audit())
	w.stop(anyone, l1)
	w.run(ofRole("batch", 3, 4, "BATCH"), 1)
	wantRules(t, w.audit())

	// The revision that writes the shares also writes a lease, so neither is newer.
	w = newWorld(t)
	r := reservation("r", 1, 3)
	w.txn(model.ServiceExecutorState, reserveShares(map[string]int64{"web": 2}), lease(r, w.put(r), w.revision, 1))
	wantRules(t, w.audit())
	a := New(space)
	a.Apply(w.snapshot())
	wantRules(t, a)
}

// TestSharesInSnapshot checks that a snapshot has a violation if the record with the
// shares is older than the newest lease.
func TestSharesInSnapshot(t *testing.T) {
	w := newWorld(t)
	w.put(reserveShares(map[string]int64{"web": 2}))
	w.run(reservation("r", 1, 3), 1)
	a := New(space)
	a.Apply(w.snapshot())
	wantRules(t, a, RuleShare)
	w.put(reserveShares(map[string]int64{"web": 3}))
	a = New(space)
	a.Apply(w.snapshot())
	wantRules(t, a)
}

// TestSharesAgainstModel plays random leases, ends and registrations. It compares the
// result with a model that adds up all leases at each grant.
func TestSharesAgainstModel(t *testing.T) {
	broken := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		type running struct {
			r *model.Reservation
			l *model.LeaseChunk
		}
		var all []running
		shares := map[string]int64{}
		count := func(role string) (n int64) {
			for _, one := range all {
				if role == "" || strings.EqualFold(one.l.Role, role) {
					n += int64(len(one.l.Workers))
				}
			}
			return n
		}
		claimed := func() int64 {
			n := count("")
			for role, share := range shares {
				n += max(0, share-count(role))
			}
			return n
		}
		want := 0
		for step := range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch act := rapid.IntRange(0, 3).Draw(rt, "act"); {
			case act == 0:
				shares = map[string]int64{"web": rapid.Int64Range(0, 2).Draw(rt, "web"),
					"batch": rapid.Int64Range(0, 2).Draw(rt, "batch")}
				w.put(reserveShares(shares))
			case act == 1 && len(all) > 0:
				at := rapid.IntRange(0, len(all)-1).Draw(rt, "end")
				one := all[at]
				all = append(all[:at:at], all[at+1:]...)
				w.stop(one.r, one.l)
			default:
				r := ofRole(fmt.Sprint("r", step), int64(step+1), rapid.Int32Range(1, 2).Draw(rt, "workers"),
					rapid.SampledFrom([]string{"", "web", "WEB", "batch", "other"}).Draw(rt, "role"))
				r.Spec.Constraints.Resources = resource.Vector{"slots": 1}
				before := claimed()
				all = append(all, running{r, w.run(r, 1)})
				if after := claimed(); after > 4 && after > before && count("") <= 4 {
					want++
				}
			}
		}
		broken += want
		got := 0
		for _, v := range w.audit().Violations() {
			switch v.Rule {
			case RuleShare:
				got++
			case RuleCapacity: // the model leases more than the capacity
			default:
				rt.Fatal(v)
			}
		}
		if got != want {
			rt.Fatalf("%d grants used reserved shares, want %d", got, want)
		}
	})
	if broken == 0 {
		t.Error("no history used a reserved share")
	}
}
