package queue

import (
	"testing"

	"berth.dev/pkg/model"
)

// Whatever rules which executors may be used wakes those that wait: a pool, a
// SKU, a request to disable, when it is written and when it goes.
func TestRulesOfExecutorsWakeTheQueue(t *testing.T) {
	for name, record := range map[string]model.Record{
		"pool": &model.Pool{Name: "night"}, "SKU": &model.SKU{Name: "small"}, "request to disable": &model.Disable{ID: "d"},
	} {
		for _, gone := range []bool{false, true} {
			w := newWorld(Config{})
			w.step(model.Elected{Term: 101, Revision: 101})
			before := w.core.wakeAt
			change := model.Changed{Ref: record.Ref(), Record: record}
			if gone {
				change.Record = nil
			}
			w.foreign(change)
			if want := w.now.Add(w.core.config.Debounce); !before.IsZero() || !w.core.wakeAt.Equal(want) {
				t.Errorf("%s, gone %v: woken at %v, want %v", name, gone, w.core.wakeAt, want)
			}
		}
	}
}
