package core_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/core"
	_ "berth.dev/testkit/fixedseed"
)

func TestJournalUndoesTheNewestChangeFirst(t *testing.T) {
	var j core.Journal[string]
	var got []string
	outcome := func(name string) {
		j.Outcome(func(durable bool) { got = append(got, fmt.Sprint(name, " durable=", durable)) })
	}
	outcome("no effect")
	j.Begin()
	j.Add("a1")
	j.Add("a2")
	outcome("first")
	j.Begin()
	j.Add("b1")
	j.Add("b2")
	outcome("second")
	j.Begin()
	j.Add("c1")
	outcome("third")
	j.Commit(1)
	j.Abandon(func(change string) { got = append(got, "undo "+change) })
	want := []string{
		"no effect durable=true", "first durable=true",
		"undo c1", "undo b2", "undo b1", "second durable=false", "third durable=false",
	}
	if !slices.Equal(got, want) || j.Len() != 0 {
		t.Errorf("got %q with %d entries left, want %q", got, j.Len(), want)
	}
}

// If memory is changed only through a journal, it equals the durable state after each
// Abandon. Every outcome is reported exactly once.
func TestJournalRestoresTheDurableState(t *testing.T) {
	type change struct{ key, before int }
	rapid.Check(t, func(t *rapid.T) {
		var j core.Journal[change]
		memory, durable := [4]int{}, [][4]int{{}} // durable[0] is the durable state; the others follow each pending effect
		reported, registered := 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"decide": func(t *rapid.T) {
				j.Begin()
				for range rapid.IntRange(0, 3).Draw(t, "changes") {
					key := rapid.IntRange(0, 3).Draw(t, "key")
					j.Add(change{key, memory[key]})
					memory[key]++
				}
				durable = append(durable, memory)
				registered++
				j.Outcome(func(bool) { reported++ })
			},
			"commit": func(t *rapid.T) {
				n := rapid.IntRange(0, j.Len()).Draw(t, "effects")
				j.Commit(n)
				durable = durable[n:]
			},
			"abandon": func(t *rapid.T) {
				j.Abandon(func(c change) { memory[c.key] = c.before })
				durable = durable[:1]
				if memory != durable[0] {
					t.Fatalf("memory is %v, want %v", memory, durable[0])
				}
			},
			"": func(t *rapid.T) {
				if j.Len() != len(durable)-1 || registered-reported != j.Len() {
					t.Fatalf("%d effects are pending and %d of %d outcomes reported, want %d effects", j.Len(), reported, registered,
						len(durable)-1)
				}
			},
		})
	})
}
