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
	// seedTTL is the time for which seeded executors are present without heartbeats. It is
	// longer than any workload.
	seedTTL = time.Hour
	// seedWriters is the number of concurrent seed transactions. seedTries is the maximum
	// number of attempts for each transaction.
	seedWriters, seedTries = 16, 5
	// seedIncarnation is the incarnation of seeded executors. The incarnation of an agent
	// that registers is higher, because it is a revision of etcd.
	seedIncarnation = 1
	// seedTerm is the term in the IDs of seeded reservations. The term of any leader of the
	// registry is higher, because it is a later revision of etcd.
	seedTerm = 1
)

// seed writes records directly to etcd before the services start.
type seed func(ctx context.Context, etcd []string) error

// seedExecutors writes n READY executors of an SKU. The records are the same as those that
// executor-state writes. The executors have no agents, so a fleet of any size needs no
// processor time for heartbeats.
func seedExecutors(sku string, n int) seed {
	now := time.Now()
	return seedEach(n, func(i int) ([2]model.Record, error) {
		e := seededExecutor(sku, i, now)
		return [2]model.Record{e, &model.Live{ID: e.ID, Incarnation: e.Incarnation}}, nil
	})
}

// seedQueued writes n queued reservations in a number of groups. The records are the same as
// those that the registry writes for the reservations of [World.queue].
func seedQueued(n, groups int, sku string) seed {
	now := time.Now()
	return seedEach(n, func(i int) ([2]model.Record, error) {
		b := queuedBatch(ownPrefix+strconv.Itoa(i%queuedJobs), fmt.Sprintf("w-%06d", i), ownPrefix+sku, i%groups)
		upsert, err := wire.UpsertOf(&berthv1.UpsertReservationRequest{Reservation: b.Request()})
		if err != nil {
			return [2]model.Record{}, err
		}
		upsert.Spec.MaxAttempts = model.DefaultAttempts
		upsert.Spec.Constraints.Resources = upsert.Spec.Constraints.Resources.WithSlots()
		workers := model.WorkerSet{{Last: int32(b.Workers) - 1, Number: 1}}
		return [2]model.Record{
			&model.Reservation{
				Key: upsert.Key, UID: fmt.Sprintf("%d-%s", seedTerm, strconv.FormatInt(int64(i+1), 36)), Spec: upsert.Spec,
				Workers: workers, Place: int64(i + 1), State: model.Queued, CreatedAt: now, UpdatedAt: now,
				Requests: []model.RequestMark{{ID: fmt.Sprintf("seed-%d", i), Change: model.Created}},
			},
			&model.Stage{Job: b.Job, Stage: b.Stage, Numbers: workers},
		}, nil
	})
}

// seedEach writes two records for each of n items. n must be positive. Each presence record
// is attached to an etcd lease.
func seedEach(n int, of func(i int) ([2]model.Record, error)) seed {
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
		each, space := store.MaxTxnOps/2, keyspace.New("default")
		_, err = callers(ctx, seedWriters, bounds{most: (n + each - 1) / each}, func(ctx context.Context, _, part int) error {
			var txn store.Txn
			var err error
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
			for range seedTries { // the puts are idempotent, and on a busy machine one call may time out
				if _, err = s.Txn(ctx, txn); err == nil || ctx.Err() != nil {
					break
				}
			}
			return err
		})
		return err
	}
}

// seededExecutor returns the i-th executor of an SKU.
func seededExecutor(sku string, i int, at time.Time) *model.Executor {
	sku = ownPrefix + sku
	return &model.Executor{
		// No process listens on the address.
		ID: fmt.Sprintf("%s-%d", sku, i), Address: "127.0.0.1:1", SKU: sku, Host: fmt.Sprintf("host-%d", i),
		Attributes:  map[string]string{"rack": fmt.Sprint(i % 50), "host": fmt.Sprintf("host-%d", i)},
		Resources:   resource.Vector{"slots": 4, "cpu": 1000},
		Incarnation: seedIncarnation, Nonce: "seed", Ordinal: uint32(i + 1), RegisteredAt: at, Since: at,
	}
}
