package client

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	berthv1 "berth.dev/api/berth/v1"
)

// past is what happened to a job, one event a revision, with the state that each
// revision left.
type past struct {
	events []*berthv1.Event
	states []state
}

// state is that of a job as the services know it: of a worker its newest
// version, and its state.
type state struct {
	versions map[string]berthv1.Reservation_State
	workers  map[[2]int32]held
}

type held struct {
	uid   string
	state berthv1.Assignment_State
}

func (p *past) now() state { return p.states[len(p.states)-1] }

// happens adds an event and the state that it leaves.
func (p *past) happens(kind berthv1.Event_Kind, uid string, version berthv1.Reservation_State, worker berthv1.Assignment_State, seats ...[2]int32) {
	next := state{maps.Clone(p.now().versions), maps.Clone(p.now().workers)}
	if version != 0 {
		next.versions[uid] = version
	}
	var told []*berthv1.EventWorker
	for _, s := range seats {
		if version == 0 || version == berthv1.Reservation_QUEUED {
			next.workers[s] = held{uid, worker}
		}
		told = append(told, of(s[0], s[1], worker))
	}
	event := toldOf(int64(len(p.states)), kind, uid, told...)
	p.events, p.states = append(p.events, event), append(p.states, next)
}

func toldOf(revision int64, kind berthv1.Event_Kind, uid string, workers ...*berthv1.EventWorker) *berthv1.Event {
	return told(revision, kind, uid, workers...)
}
