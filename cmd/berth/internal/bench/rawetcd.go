package bench

import (
	"context"
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

var rawEtcd = Workload{
	Name:     "raw-etcd",
	Shows:    "puts of the size of a reservation, straight to etcd",
	Anywhere: true,
	Run: inWorld(func(ctx context.Context, w *World) error {
		w.Note("a reservation's record is %d bytes", len(w.record))
		for _, n := range []int{1, 64, 256} {
			if err := w.repeat(ctx, w.puts(n)); err != nil {
				return err
			}
		}
		return nil
	}),
}

// puts64 is the name of the series that puts(64) returns.
const puts64 = "etcd, 64 callers"

// puts returns a series in which n callers put keys to etcd that Berth does not use.
func (w *World) puts(n int) series {
	return series{name: fmt.Sprintf("etcd, %d callers", n), callers: n, do: w.put}
}

// readRecord creates a reservation, reads its record and cancels the reservation. The puts
// of the baseline write the same record, so that they are as large as the records of Berth.
func (w *World) readRecord(ctx context.Context) error {
	b := Batch{Job: w.Job(999_999), Stage: "s-000000", Workers: 8, SKU: w.SKU("none")}
	if err := w.Ask(ctx, b); err != nil {
		return err
	}
	prefix := w.Space.Key(model.Ref{Kind: model.KindReservation, Key: model.Key{Job: b.Job, Stage: b.Stage, Name: "main"}})
	records, _, err := store.Range(ctx, w.Etcd, prefix)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fault.New(fault.Internal, fault.ReasonInternal, "etcd has no record of reservation %s", b.Key())
	}
	w.record = records[0].Value
	_, err = w.Client.Cancel(ctx, b.Key())
	return err
}

// put is an operation that puts one new key.
func (w *World) put(ctx context.Context, caller, i int) error {
	key := fmt.Sprintf("%s%d/s-%06d/main/%d", w.rawPrefix(), caller, i, w.next())
	_, err := w.Etcd.Client().Put(ctx, key, string(w.record))
	return err
}

// rawPrefix returns the prefix of the keys that put writes. Berth itself never uses keys
// with this prefix.
func (w *World) rawPrefix() string { return "/berth-bench/" + w.Prefix + "/" }
