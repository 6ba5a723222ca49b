package leader

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/store"
)

// Candidate is a replica that can lead, as others see it.
type Candidate struct {
	// ID is the replica's name, which a restart keeps where it is configured.
	ID string
	// Instance identifies the process; no other process ever has the same.
	Instance string
	// Address is where this very process is reached, not a service's.
	Address string
	Version string
}

// Holder is who leads.
type Holder struct {
	Candidate
	// Term is the create revision of the key.
	Term int64
	// Since is when it won, by its own clock.
	Since time.Time
}

// ParseHolder reads the leader key's record.
func ParseHolder(kv store.KV) (Holder, error) {
	var record recordv1.Leader
	if err := proto.Unmarshal(kv.Value, &record); err != nil {
		return Holder{}, fmt.Errorf("leader: record of %s: %w", kv.Key, err)
	}
	return Holder{
		Candidate: Candidate{ID: record.Replica, Instance: record.Instance, Address: record.Address, Version: record.Version},
		Term:      kv.Create,
		Since:     record.Since.AsTime(),
	}, nil
}

// is reports whether the holder answered. Only the instance counts: a process that is
// started again under its old name is another one.
func (h Holder) is(answered Candidate) bool { return answered.Instance == h.Instance }

// record is the value of the key when this candidate wins.
func (c Candidate) record(now time.Time) []byte {
	value, err := proto.Marshal(&recordv1.Leader{
		Replica: c.ID, Instance: c.Instance, Address: c.Address, Version: c.Version, Since: timestamppb.New(now),
	})
	if err != nil {
		panic(err) // only a string that is not UTF-8 fails, and New refuses those
	}
	return value
}

// Observe tells who leads, at once and at every change; found is false when
// nobody does. It returns when ctx is over, with its error, or when tell answers
// false.
func Observe(ctx context.Context, s store.Store, key string, tell func(h Holder, found bool) bool) error {
	return follow(ctx, s, key, func(kv store.KV, found bool) bool {
		var h Holder
		if found {
			// A record that cannot be read still has a term.
			h, _ = ParseHolder(kv)
			h.Term = kv.Create
		}
		return tell(h, found)
	})
}

// follow tells one key as it stands, at once and at every change, until tell
// answers false or ctx is over. It reads first and then watches from there, so a
// delete is never missed, and it goes on after any break.
func follow(ctx context.Context, s store.Store, key string, tell func(kv store.KV, found bool) bool) error {
	view := store.OpenView(s, key)
	defer view.Close()
	for {
		batch, err := view.Next(ctx)
		if err != nil {
			return err
		}
		var kv store.KV
		found, changed := false, batch.Reset
		for _, c := range batch.Changes {
			if c.Key == key {
				kv, found, changed = c.KV, !c.Deleted, true
			}
		}
		if changed && !tell(kv, found) {
			return nil
		}
	}
}
