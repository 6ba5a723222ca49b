package sim

import (
	"io"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// alarm is a replica that has something to do once, at a time.
type alarm struct {
	replica
	w    *World
	at   time.Time
	rang bool
}

func (a *alarm) behind() bool { return false }

func (a *alarm) asked() bool { return !a.rang && !a.w.now.Before(a.at) }

func (a *alarm) turn() { a.rang = a.rang || a.asked() }

// TestRestWaitsForWhatIsDue checks that a world is not at rest while a replica has something to do. A
// deadline may follow from a change that is no progress, so it may be in the last second of the world.
func TestRestWaitsForWhatIsDue(t *testing.T) {
	for at := 55 * time.Second; at < 65*time.Second; at += 100 * time.Millisecond {
		w := newWorld(1, io.Discard)
		w.clients = newClients(w)
		a := &alarm{w: w, at: w.now.Add(at)}
		w.replicas[model.ServiceRegistry] = []replica{a}
		if err := w.settle(); err != nil {
			t.Fatal(err)
		}
		if a.asked() {
			t.Errorf("the world is at rest at %v, and a replica has something to do since %v", w.now.Sub(startTime), at)
		}
	}
}
