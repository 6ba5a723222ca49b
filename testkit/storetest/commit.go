package storetest

import (
	"errors"
	"fmt"
	"testing"

	"berth.dev/pkg/store"
)

// lead puts the leader key and returns a committer of the term.
func lead(t *testing.T, s store.Store) *store.Committer {
	t.Helper()
	term := must(t, s, put("leaders/x", "me"))
	return store.NewCommitter(s, store.CommitterConfig{LeaderKey: "leaders/x", Term: term, ChainKey: "x/chain"})
}

func testCommit(t *testing.T, s Subject) {
	c := lead(t, s)
	// These are too many writes for one transaction.
	var writes []store.Write
	for i := range 100 {
		writes = append(writes, store.Write{Ops: []store.Op{
			put(fmt.Sprintf("x/a%02d", i), "1"), put(fmt.Sprintf("x/b%02d", i), "1"),
		}})
	}
	done, err := c.Commit(patient(t), writes)
	if err != nil || len(done) != 2 || done[0].Writes+done[1].Writes != 100 {
		t.Fatalf("committed %+v, %v", done, err)
	}
	n := done[0].Writes
	for i := range writes {
		want := done[0].Revision
		if i >= n {
			want = done[1].Revision
		}
		a, b := get(t, s, fmt.Sprintf("x/a%02d", i)), get(t, s, fmt.Sprintf("x/b%02d", i))
		if a.Mod != want || b.Mod != want {
			t.Fatalf("write %d is at %d and %d, want %d", i, a.Mod, b.Mod, want)
		}
	}
	// The next term continues the chain.
	must(t, s, store.Delete("leaders/x"))
	term := must(t, s, put("leaders/x", "you"))
	heir := store.NewCommitter(s, store.CommitterConfig{
		LeaderKey: "leaders/x", Term: term, ChainKey: "x/chain", Chain: get(t, s, "x/chain").Value,
	})
	if _, err := heir.Commit(patient(t), writes[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(patient(t), writes[:1]); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a commit of the previous term succeeded: %v", err)
	}
}

func testCommitConflict(t *testing.T, s Subject) {
	c := lead(t, s)
	rev := must(t, s, put("y/a", "1"), put("y/b", "1"))
	moved := must(t, s, put("y/b", "2"))
	write := func(key string, compares ...store.Compare) store.Write {
		return store.Write{Ops: []store.Op{put(key, "1")}, If: compares}
	}
	done, err := c.Commit(patient(t), []store.Write{
		write("x/1", store.ModifiedAt("y/a", rev)),
		write("x/2", store.ModifiedAt("y/b", rev), store.Absent("y/c")),
	})
	var conflict *store.Conflict
	if !errors.As(err, &conflict) || len(done) != 0 {
		t.Fatalf("committed %+v, %v", done, err)
	}
	if conflict.Revision != moved || len(conflict.Failed) != 1 || conflict.Failed[0] != store.ModifiedAt("y/b", rev) {
		t.Errorf("conflict %+v", conflict)
	}
	if done, err = c.Commit(patient(t), []store.Write{write("x/1"),
		write("x/2", store.ModifiedAt("y/b", moved))}); err != nil {
		t.Errorf("after a conflict: %+v, %v", done, err)
	}
}

func testCommitFenced(t *testing.T, s Subject) {
	for name, spoil := range map[string]func(){
		"gone":     func() { must(t, s, store.Delete("leaders/x")) },
		"replaced": func() { must(t, s, store.Delete("leaders/x")); must(t, s, put("leaders/x", "you")) },
		"chain":    func() { must(t, s, put("x/chain", "who was that?")) },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, s, store.Delete("leaders/x"), store.Delete("x/chain"))
			c := lead(t, s)
			spoil()
			before := get(t, s, "x/a")
			for range 2 {
				done, err := c.Commit(patient(t), []store.Write{{Ops: []store.Op{put("x/a", name)}}})
				if !errors.Is(err, store.ErrFenced) || len(done) != 0 {
					t.Errorf("committed %+v, %v", done, err)
				}
			}
			if after := get(t, s, "x/a"); after.Mod != before.Mod {
				t.Error("a fenced write was committed")
			}
		})
	}
}

// If a write uses an expired etcd lease, the other writes of its transaction must not
// fail.
func testCommitLeaseMissing(t *testing.T, s Subject) {
	c := lead(t, s)
	done, err := c.Commit(patient(t), []store.Write{
		{Ops: []store.Op{put("x/a", "1")}},
		{Ops: []store.Op{{Key: "x/b", Lease: 4711}}},
		{Ops: []store.Op{put("x/c", "1")}},
	})
	if !errors.Is(err, store.ErrLeaseNotFound) || len(done) != 1 || done[0].Writes != 1 {
		t.Fatalf("committed %+v, %v", done, err)
	}
	if done, err = c.Commit(patient(t), []store.Write{{Ops: []store.Op{put("x/c", "1")}}}); err != nil {
		t.Fatalf("after a refusal: %+v, %v", done, err)
	}
}
