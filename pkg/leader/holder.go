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

// Candidate identifies a replica that can lead.
type Candidate struct {
	// ID is the name of the replica. A configured name stays the same after a restart.
	ID string
	// Instance is unique for each process.
	Instance string
	// Address is the address of this process. It must not lead to another replica of the
	// service.
	Address string
	Version string
}

// Holder is the replica that holds the leader key.
type Holder struct {
	Candidate
	// Term is the create revision of the key.
	Term int64
	// Since is the time at which the holder was elected, by its own clock.
	Since time.Time
}

// ParseHolder decodes the record in the leader key.
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

// is reports whether the process that answered is the holder. It compares only Instance:
// a restarted process is another process, even with the same name.
func (h Holder) is(answered Candidate) bool { return answered.Instance == h.Instance }

// record returns the value of the key when this candidate wins.
func (c Candidate) record(now time.Time) []byte {
	value, err := proto.Marshal(&recordv1.Leader{
		Replica: c.ID, Instance: c.Instance, Address: c.Address, Version: c.Version, Since: timestamppb.New(now),
	})
	if err != nil {
		panic(err) // this fails only for a string that is not UTF-8, which New refuses
	}
	return value
}

// follow calls report with the key's value, at once and after every change, until report
// returns false or ctx ends. It reads first and watches from that revision, so it never
// misses a delete, and it continues after a broken watch.
func follow(ctx context.Context, s store.Store, key string, report func(kv store.KV, found bool) bool) error {
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
		if changed && !report(kv, found) {
			return nil
		}
	}
}

// waitDeleted returns nil once the key of a term is deleted, and an error if ctx ends
// first.
func waitDeleted(ctx context.Context, s store.Store, key string, term int64) error {
	return follow(ctx, s, key, func(kv store.KV, found bool) bool { return found && kv.Create == term })
}

// parseHolder is like ParseHolder, but also returns the term if the record cannot be
// decoded.
func parseHolder(kv store.KV) Holder {
	h, _ := ParseHolder(kv)
	h.Term = kv.Create
	return h
}
