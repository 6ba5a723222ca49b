package bench

import (
	"cmp"
	"context"
	"sort"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// The kinds of keys that writes are told by, as the table shows them.
const (
	writesTxn         = "txns"
	writesReservation = "resvs"
	writesStage       = "stages"
	writesLease       = "leases"
	writesTask        = "tasks"
	writesEvent       = "events"
	writesOther       = "others"
)

// kindsOfRecords are the kinds by records. Every transaction of a service changes its
// chain, so chains count transactions.
var kindsOfRecords = map[model.Kind]string{
	model.KindChain: writesTxn, model.KindReservation: writesReservation, model.KindStage: writesStage,
	model.KindLeaseChunk: writesLease, model.KindTaskHeader: writesTask, model.KindTaskChunk: writesTask,
}

// writeKind returns the kind of a key.
func writeKind(space keyspace.Space, key string) string {
	ref, ok := space.Parse(key)
	if !ok {
		return writesEvent
	}
	return cmp.Or(kindsOfRecords[ref.Kind], writesOther)
}

// counter is a store whose watches count what they deliver towards the phases
// that wrote it. The audit reads through it, so that history is read once.
type counter struct {
	store.Store
	space keyspace.Space
	// phases are in order of revision.
	phases []Cost
}

// Watch implements store.Store.
func (c *counter) Watch(prefix string, from int64) store.Watch {
	return &countingWatch{c.Store.Watch(prefix, from), c}
}

type countingWatch struct {
	store.Watch
	counter *counter
}

// Next implements store.Watch.
func (w *countingWatch) Next(ctx context.Context) (store.Batch, error) {
	batch, err := w.Watch.Next(ctx)
	for _, change := range batch.Changes {
		w.counter.count(change)
	}
	return batch, err
}

func (c *counter) count(change store.Change) {
	i := sort.Search(len(c.phases), func(i int) bool { return c.phases[i].to >= change.Mod })
	if i == len(c.phases) || change.Mod <= c.phases[i].from {
		return
	}
	p := &c.phases[i]
	kind := writeKind(c.space, change.Key)
	p.Writes[kind]++
	p.Bytes += len(change.Value)
}
