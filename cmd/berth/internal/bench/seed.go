package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	berthv1 "berth.dev/api/berth/v1"
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
	// seedTerm is the term that seeded reservations were accepted in: before any
	// that a registry can win, for those are revisions behind the seeds.
	seedTerm = 1
)

// A seed writes records straight to etcd, before anything runs.
type seed func(ctx context.Context, etcd []string) error

// seedExecutors writes n executors of an SKU as executor-state would have: READY,
// and nobody behind them. For what a fleet costs that is only looked at, however
// large, without the processor time of its heartbeats.
func seedExecutors(sku string, n int) seed {
	now := time.Now()
	return seedEach(n, 2, func(i int) ([]model.Record, error) {
		e := seededExecutor(sku, i, now)
		return []model.Record{e, &model.Live{ID: e.ID, Incarnation: e.Incarnation}}, nil
	})
}

// seedWaiting writes n reservations as the registry would have queued them, in so
// many groups: those of [World.queue]. For what they cost that wait already, without
// the time that their calls take.
func seedWaiting(n, groups int, sku string) seed {
	now := time.Now()
	return seedEach(n, 2, func(i int) ([]model.Record, error) {
		b := waitingBatch(ownPrefix+strconv.Itoa(i%waitingJobs), fmt.Sprintf("w-%06d", i), ownPrefix+sku, i%groups)
		asked, err := wire.UpsertOf(&berthv1.UpsertReservationRequest{Reservation: b.Request()})
		if err != nil {
			return nil, err
		}
		asked.Spec.MaxAttempts = model.DefaultAttempts
		asked.Spec.Constraints.Resources = asked.Spec.Constraints.Resources.WithSlots()
		workers := model.WorkerSet{{Last: int32(b.Workers) - 1, Number: 1}}
		return []model.Record{
			&model.Reservation{
				Key: asked.Key, UID: fmt.Sprintf("%d-%s", seedTerm, strconv.FormatInt(int64(i+1), 36)), Spec: asked.Spec, Workers: workers,
				Place: int64(i + 1), State: model.Queued, CreatedAt: now, UpdatedAt: now,
				Requests: []model.RequestMark{{ID: fmt.Sprintf("seed-%d", i), Change: model.Created}},
			},
			&model.Stage{Job: b.Job, Stage: b.Stage, Numbers: workers},
		}, nil
	})
}

// seedEach writes the records of n things, which are so many of each; presences
// are on an etcd lease of their own.
func seedEach(n, records int, of func(i int) ([]model.Record, error)) seed {
	if n == 0 {
		return nil // nothing bounds as many callers as none
	}
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
		each, space := store.MaxTxnOps/records, keyspace.New("default")
		_, err = callers(ctx, seedWriters, bounds{most: (n + each - 1) / each}, func(ctx context.Context, _, part int) error {
			var txn store.Txn
			for i := part * each; i < min((part+1)*each, n); i++ {
				list, err := of(i)
				if err != nil {
					return err
				}
				for _, record := range list {
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
