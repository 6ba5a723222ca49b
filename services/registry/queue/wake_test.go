package queue

import (
	"testing"

	"berth.dev/pkg/model"
)

// The queue retries when the rules about usable executors change: when a pool, a SKU or a
// request to disable is written or deleted.
func TestRulesOfExecutorsWakeTheQueue(t *testing.T) {
	for name, record := range map[string]model.Record{
		"pool": &model.Pool{Name: "night"}, "SKU": &model.SKU{Name: "small"}, "request to disable": &model.Disable{ID: "d"},
	} {
		for _, deleted := range []bool{false, true} {
			w := newWorld(Config{})
			w.step(model.Elected{Term: 101, Revision: 101})
			before, _ := w.core.scheduler.Deadlines()
			change := model.Changed{Ref: record.Ref(), Record: record}
			if deleted {
				change.Record = nil
			}
			w.foreign(change)
			after, _ := w.core.scheduler.Deadlines()
			if want := w.now.Add(w.core.config.Scheduling.Debounce); !before.IsZero() || !after.Equal(want) {
				t.Errorf("%s, deleted %v: woken at %v, want %v", name, deleted, after, want)
			}
		}
	}
}
