package cell

import (
	"fmt"
	"strings"
	"testing"

	controlv1 "berth.dev/api/berth/control/v1"
	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/pkg/model"
)

// TestGangOfTheParent checks that the parent learns on which hosts its workers run, and that the members of
// each reservation of the child are those of the parent's gang: also of a worker that was restarted, which
// has a reservation of its own.
func TestGangOfTheParent(t *testing.T) {
	w := newWorld(t, 3, nil)
	gang := model.Key{Job: "train", Stage: "map", Name: "main"}
	w.offer("u1", 2)
	w.answered("u1.1 ACCEPTED")
	w.move("u1", berthv1.CellOffer_BOUND)
	w.run("u1", 5, "")
	w.run("u1", 6, "")
	placed := func(index, number int32) {
		w.await(fmt.Sprintf("the host of %d.%d", index, number), func() bool {
			return w.placed[model.WorkerID{Index: index, Number: number}] == "127.0.0.1 at epoch 7"
		})
	}
	placed(5, 2)
	placed(6, 2)

	member := func(index, number int32, executor, host string) model.Member {
		return model.Member{ID: model.WorkerID{Index: index, Number: number}, Executor: executor, Host: host}
	}
	one := func(index int32) model.Indexes { return model.Indexes{{First: index, Last: index}} }
	w.driver.GangChanged(gang, model.NewMembers(4, []model.Member{
		member(3, 9, "other", "far"), member(5, 2, "z", "127.0.0.1"),
		member(6, 2, "z", "127.0.0.1")}, model.Unplaced{Waiting: one(4), Ended: one(3)}))
	w.members("u1", "4 workers: 3.9@far 5.1@127.0.0.1 6.1@127.0.0.1 waiting [4] ended [3] gave up []")

	// Worker 5 is restarted, and 4 was given up.
	w.offer("u2", 1, func(o *controlv1.Offer) { o.Workers = []*recordv1.WorkerRun{{First: 5, Last: 5, Number: 3}} })
	w.answered("u2.1 ACCEPTED")
	w.move("u2", berthv1.CellOffer_BOUND)
	spec := w.spec("u2", 5, "")
	spec.Worker.ID.Number = 3
	if _, err := w.driver.Start(spec, nil); err != nil {
		t.Fatal(err)
	}
	placed(5, 3)
	w.driver.GangChanged(gang, model.NewMembers(4, []model.Member{
		member(3, 9, "other", "far"), member(5, 3, "z", "127.0.0.1"),
		member(6, 2, "z", "127.0.0.1")}, model.Unplaced{Ended: one(3), GaveUp: one(4)}))
	for _, uid := range []string{"u1", "u2"} {
		w.members(uid, "4 workers: 3.9@far 5.2@127.0.0.1 6.1@127.0.0.1 waiting [] ended [3] gave up [4]")
	}

	// The child's own members of the restarted worker are its own.
	own, err := w.client.Members(t.Context(),
		&berthv1.ListMembersRequest{Job: w.key("u2").Job, Stage: "map", Name: "u2", Own: true})
	if err != nil || own.GetWorkers() != 1 || len(own.GetMembers()) != 1 {
		t.Errorf("the child's own members are %v, %v", own, err)
	}
}

// members waits until the members of a reservation of the child are the given ones.
func (w *world) members(uid, want string) {
	w.Helper()
	var got string
	for list, err := range w.client.WatchMembers(w.Context(), client.Key{Job: w.key(uid).Job, Stage: "map", Name: uid}) {
		if err != nil {
			w.Fatal(err)
		}
		var text []string
		for _, m := range list.GetMembers() {
			text = append(text, fmt.Sprintf("%d.%d@%s", m.GetIndex(), m.GetNumber(), m.GetHost()))
		}
		indexes := func(ranges []*berthv1.IndexRange) (all []int32) {
			for _, r := range ranges {
				for index := r.GetFirst(); index <= r.GetLast(); index++ {
					all = append(all, index)
				}
			}
			return all
		}
		got = fmt.Sprintf("%d workers: %s waiting %v ended %v gave up %v", list.GetWorkers(), strings.Join(text, " "),
			indexes(list.GetWaiting()), indexes(list.GetEnded()), indexes(list.GetGaveUp()))
		w.Log(uid, got)
		if got == want {
			return
		}
	}
	w.Fatalf("the members of %s are %s, want %s", uid, got, want)
}
