package agent

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
)

// Who lives is counted where entries come and go: the counts are those of the
// entries, whatever happened.
func TestTheLivingAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger("e", time.Hour)
		l.begin(1, 1)
		for range 60 {
			id := identity{model.Worker{Job: "j", ID: model.WorkerID{Index: rapid.Int32Range(0, 2).Draw(t, "index")}}, rapid.Int64Range(1, 3).Draw(t, "epoch")}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				_, _, _, _ = l.submit(1, 1, id, "u", time.Time{}) // a refusal changes nothing
			case 2:
				l.adopt(id, "u", model.WorkerRunning, time.Time{})
			case 3:
				l.ended(id, Exit{}, time.Time{})
			case 4:
				l.startFailed(id)
			case 5:
				l.evicting(id, time.Time{})
			}
			living, lives := 0, map[model.Worker]int{}
			for _, e := range l.entries {
				if !e.state.Terminal() {
					living++
					lives[e.Worker]++
				}
			}
			if l.living != living || len(l.lives) != len(lives) {
				t.Fatalf("%d live, %v; %d are counted, %v", living, lives, l.living, l.lives)
			}
			for name, n := range lives {
				if l.lives[name] != n {
					t.Fatalf("%d of %s live, %d are counted", n, name, l.lives[name])
				}
			}
		}
	})
}
