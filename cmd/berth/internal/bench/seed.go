package bench

import (
	"context"
	"fmt"
	"time"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

const (
	// seedTTL is how long seeded executors are present, without heartbeats: longer
	// than any workload.
	seedTTL = time.Hour
	// seedWriters is how many transactions seed at once.
	seedWriters = 16
	// seedIncarnation is that of seeded executors: whoever registers in their place
	// has a higher one, for that is a revision.
	seedIncarnation = 1
)

// seedExecutors writes n executors of an SKU straight to etcd, as executor-state
// would have: READY, and nobody behind them. For what a fleet costs that is only
// looked at, however large, without the processor time of its heartbeats.
func seedExecutors(sku string, n int) func(ctx context.Context, etcd []string) error {
	return func(ctx context.Context, etcd []string) error {
		s, err := store.Dial(store.DialConfig{Endpoints: etcd})
		if err != nil {
			return err
		}
		defer s.Close()
		lease, err := s.Grant(ctx, seedTTL)
		if err != nil {
			return err
		}
		const each = store.MaxTxnOps / 2 // a record and presence
		space, now := keyspace.New("default"), time.Now()
		_, err = callers(ctx, seedWriters, bounds{most: (n + each - 1) / each}, func(ctx context.Context, _, part int) error {
			var txn store.Txn
			for i := part * each; i < min((part+1)*each, n); i++ {
				e := seededExecutor(sku, i, now)
				for _, record := range []model.Record{e, &model.Live{ID: e.ID, Incarnation: e.Incarnation}} {
					value, err := wire.Encode(record)
					if err != nil {
						return err
					}
					op := store.Put(space.Key(record.Ref()), value)
					if record.Ref().Kind == model.KindLive {
						op.Lease = lease.ID
					}
					txn.Then = append(txn.Then, op)
				}
			}
			return again(ctx, func() error { // the same puts twice are the same
				_, err := s.Txn(ctx, txn)
				return err
			})
		})
		return err
	}
}

// seededExecutor is the i-th of an SKU, as one of a world of its own has it.
func seededExecutor(sku string, i int, at time.Time) *model.Executor {
	sku = ownPrefix + sku
	return &model.Executor{
		// Nobody listens on the address.
		ID: fmt.Sprintf("%s-%d", sku, i), Address: "127.0.0.1:1", SKU: sku, Host: fmt.Sprintf("host-%d", i),
		Attributes:  map[string]string{"rack": fmt.Sprint(i % 50), "host": fmt.Sprintf("host-%d", i)},
		Resources:   resource.Vector{"slots": 4, "cpu": 1000},
		Incarnation: seedIncarnation, Nonce: "seed", Ordinal: uint32(i + 1), RegisteredAt: at, Since: at,
	}
}
