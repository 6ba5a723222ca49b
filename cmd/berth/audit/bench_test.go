package audit

import (
	"fmt"
	"testing"

	"berth.dev/pkg/store"
)

// BenchmarkApply audits one worker after another while 100,000 reservations are queued.
// Each worker has ten revisions.
func BenchmarkApply(b *testing.B) {
	w := newWorld(b)
	for i := range int32(100_000) {
		r := reservation(fmt.Sprint("waiting", i), int64(i)+1, 1)
		r.Workers[0].First, r.Workers[0].Last = i, i
		w.put(ordered(r, 1<<40))
	}
	a := w.audit()
	w.history = nil
	for i := range b.N {
		r := reservation(fmt.Sprint("r", i), 1, 1)
		r.Workers[0].First, r.Workers[0].Last = 100_000, 100_000
		r.Workers[0].Number = int32(i) + 1
		w.stop(r, w.run(r, 1))
	}
	begun := w.revision - int64(b.N)*14
	b.ResetTimer()
	a.Apply(store.Batch{Revision: w.revision, Changes: w.history})
	b.ReportMetric(float64(w.revision-begun)/b.Elapsed().Seconds(), "revisions/s")
	if a.Count() > 0 {
		b.Fatal(a.Violations()[0])
	}
}
