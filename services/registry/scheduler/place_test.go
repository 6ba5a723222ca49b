package scheduler

import (
	"cmp"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
	_ "berth.dev/testkit/fixedseed"
)

func drawReservation(t *rapid.T) *model.Reservation {
	small := rapid.Int64Range(-2, 2)
	r := &model.Reservation{
		UID: fmt.Sprintf("1-%d", rapid.IntRange(0, 3).Draw(t, "uid")), Place: small.Draw(t, "place"),
		Origin: model.Origin(rapid.IntRange(0, 2).Draw(t, "origin")),
		Epoch:  rapid.Int64Range(0, 2).Draw(t, "epoch"), PlaceEpoch: rapid.Int64Range(0, 2).Draw(t, "placeEpoch"),
		Workers: model.WorkerSetOf([]model.WorkerID{{Index: rapid.Int32Range(0, 2).Draw(t, "index"), Number: 7}}),
	}
	r.RefusedEpoch = rapid.Int64Range(0, 1).Draw(t, "refusedEpoch")
	r.Spec.Requeue = model.Requeue(rapid.IntRange(0, 1).Draw(t, "requeue"))
	r.Spec.Priority.Class = model.Class(rapid.IntRange(0, 3).Draw(t, "class"))
	r.Spec.Priority.Tier = int32(small.Draw(t, "tier"))
	if rapid.Bool().Draw(t, "ordered") {
		order := small.Draw(t, "order")
		r.Spec.Priority.Order = &order
	}
	return r
}

// With either strategy, a reservation and its parsed place compare equal with each other and
// in the same way with all other reservations.
func TestPlaceIsThatOfTheReservation(t *testing.T) {
	for name, order := range orders {
		s := New(Config{Order: order})
		rapid.Check(t, func(t *rapid.T) {
			a, b := drawReservation(t), drawReservation(t)
			place, valid := ParsePlace(PlaceOf(a))
			if !valid || s.Compare(a, place) != 0 {
				t.Fatalf("%s: %q is not the place of %+v", name, PlaceOf(a), a)
			}
			if got, want := cmp.Compare(s.Compare(place, b), 0), cmp.Compare(s.Compare(a, b), 0); got != want {
				t.Fatalf("%s: %q compares %d with %+v, want %d", name, PlaceOf(a), got, b, want)
			}
		})
	}
}

func TestInvalidPlaces(t *testing.T) {
	for _, text := range []string{
		"", "j/s/main", "0//0/0/1/1/0/", "0//0/0/1/1/-1/u", "x//0/0/1/1/0/u", "0/x/0/0/1/1/0/u", "0//0/0/1/1/0/u/v",
		"0//0/0/1/1/0/refused",
		"0//0/0/9223372036854775808/1/0/u", "0//0/0/1/1/2147483648/u", "300//0/0/1/1/0/u",
	} {
		if place, valid := ParsePlace(text); valid {
			t.Errorf("%q is the place of %+v", text, place)
		}
	}
}
