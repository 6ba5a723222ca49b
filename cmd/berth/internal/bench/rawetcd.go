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
	Run: func(ctx context.Context, w *World) error {
		w.run.Note("a reservation's record is %d bytes", len(w.record))
		for _, n := range []int{1, 64, 256} {
			if err := w.repeat(ctx, w.puts(n)); err != nil {
				return err
			}
		}
		return nil
	},
}

// puts is a series of puts by n callers to etcd, beside Berth's own keys.
func (w *World) puts(n int) series {
	return series{name: fmt.Sprintf("etcd, %d callers", n), callers: n, do: w.put}
}

// readRecord makes a reservation and reads its record: what Berth writes for each is
// what puts write.
func (w *World) readRecord(ctx context.Context) error {
	b := Batch{Job: w.Job(999_999), Stage: "s-000000", Workers: 8, SKU: w.SKU("none")}
	if err := w.Ask(ctx, b); err != nil {
		return err
	}
	prefix := w.Space.Key(model.Ref{Kind: model.KindReservation, Key: model.Key{Job: b.Job, Stage: b.Stage, Name: "main"}})
	page, err := w.Etcd.Page(ctx, store.PageRequest{From: prefix, To: prefix + "\xff", Limit: 1})
	if err != nil {
		return err
	}
	if len(page.KVs) == 0 {
		return fault.New(fault.Internal, fault.ReasonInternal, "there is no record of %s", b.Key())
	}
	w.record = page.KVs[0].Value
	_, err = w.Client.Cancel(ctx, b.Key())
	return err
}

// put is an operation: one put of a new key.
func (w *World) put(ctx context.Context, caller, i int) error {
	key := fmt.Sprintf("%s%d/s-%06d/main/%d", w.rawPrefix(), caller, i, w.run.next())
	_, err := w.Etcd.Client().Put(ctx, key, string(w.record))
	return err
}

// rawPrefix begins the keys that raw puts make, beside those of any Berth.
func (w *World) rawPrefix() string { return "/berth-bench/" + w.Prefix + "/" }

// clear deletes what raw puts have made.
func (w *World) clear(ctx context.Context) error {
	from := w.rawPrefix()
	for {
		page, err := w.Etcd.Page(ctx, store.PageRequest{From: from, To: from + "\xff", Limit: store.MaxTxnOps})
		if err != nil || len(page.KVs) == 0 {
			return err
		}
		var txn store.Txn
		for _, kv := range page.KVs {
			txn.Then = append(txn.Then, store.Delete(kv.Key))
		}
		if _, err := w.Etcd.Txn(ctx, txn); err != nil {
			return err
		}
	}
}

// series is a steady load that is done several times.
type series struct {
	name    string
	callers int
	// most bounds the operations of one repeat; only the window does if it is 0.
	most int
	// against is the name of the series that is the baseline.
	against string
	// units is how many things one operation does; 1 unless given.
	units int
	// target is what the rate is to be.
	target *Target
	do     operation
}

// repeat does one series after the other, again and again, so that what else the
// machine does meanwhile is shared by all. It adds two figures for each: its
// rate, a sample a repeat, and how long an operation took.
func (w *World) repeat(ctx context.Context, all ...series) error {
	r := w.run
	rates, took := make([][]float64, len(all)), make([][]float64, len(all))
	for range r.Repeats {
		for i, s := range all {
			err := w.Measure(ctx, s.name, func() (int, error) {
				l, err := callers(ctx, s.callers, bounds{time: r.Window, most: s.most}, s.do)
				rates[i] = append(rates[i], l.Rate()*float64(max(1, s.units)))
				took[i] = append(took[i], l.Took...)
				return len(l.Took), err
			})
			if err != nil {
				return err
			}
		}
	}
	for i, s := range all {
		r.Add(Figure{Name: s.name, Unit: "/s", Against: s.against, Samples: rates[i], Target: s.target})
	}
	for i, s := range all {
		r.Add(Figure{Name: s.name, Unit: "ms", Against: s.against, Samples: took[i]})
	}
	return nil
}
