package bench

import (
	"cmp"
	"context"
	"sort"
	"time"

	"berth.dev/cmd/berth/audit"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Audit is the result of auditing the history of one world.
type Audit struct {
	Revision       int64    `json:"revision"`
	Seconds        float64  `json:"seconds"`
	LeasesGranted  int      `json:"leasesGranted"`
	WorkersLeased  int      `json:"workersLeased"`
	WorkersRunning int      `json:"workersRunning"`
	Violations     int      `json:"violations"`
	First          []string `json:"first,omitempty"`
}

// audit audits every revision since the world began. It also counts, for each phase, the
// keys that Berth wrote.
func (w *World) audit(ctx context.Context) error {
	w.Say("auditing")
	began := time.Now()
	var phases []*Cost
	for i := range w.Costs {
		if w.Costs[i].world == w {
			phases = append(phases, &w.Costs[i])
		}
	}
	auditor, err := audit.Check(ctx, w.Etcd, w.Space, w.from, func(c store.Change) { countWrite(w.Space, phases, c) })
	if err != nil {
		return err
	}
	s := auditor.Stats()
	a := Audit{
		Revision: s.Revision, Seconds: time.Since(began).Seconds(), LeasesGranted: s.LeasesGranted,
		WorkersLeased: s.WorkersLeased, WorkersRunning: s.WorkersRunning, Violations: auditor.Count(),
	}
	for _, v := range auditor.Violations() {
		a.First = append(a.First, v.String())
	}
	w.Audits = append(w.Audits, a)
	w.Say("%d violations up to revision %d, audited in %.1f s", a.Violations, a.Revision, a.Seconds)
	return nil
}

// The kinds of written keys, as the table of costs names them.
const (
	writesTxn         = "txns"
	writesReservation = "resvs"
	writesStage       = "stages"
	writesLease       = "leases"
	writesTask        = "tasks"
	writesEvent       = "events"
	writesOther       = "others"
)

// kindsOfRecords maps kinds of records to the kinds of keys in the table. Every transaction
// of a service changes the chain of that service, so the number of chain writes is the
// number of transactions.
var kindsOfRecords = map[model.Kind]string{
	model.KindChain: writesTxn, model.KindReservation: writesReservation, model.KindStage: writesStage,
	model.KindLeaseChunk: writesLease, model.KindTaskHeader: writesTask, model.KindTaskChunk: writesTask,
}

// countWrite counts a change for the phase in which it was written. The phases must be in
// order of revision.
func countWrite(space keyspace.Space, phases []*Cost, change store.Change) {
	i := sort.Search(len(phases), func(i int) bool { return phases[i].to >= change.Mod })
	if i == len(phases) || change.Mod <= phases[i].from {
		return
	}
	kind := writesEvent
	if ref, ok := space.Parse(change.Key); ok {
		kind = cmp.Or(kindsOfRecords[ref.Kind], writesOther)
	}
	phases[i].Writes[kind]++
	phases[i].Bytes += len(change.Value)
}
