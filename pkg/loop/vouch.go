package loop

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// FromLeader is a request that the leader of another service sends. Its term counts
// only if it is that of the service's leader key.
type FromLeader interface {
	From() (service string, term int64)
}

// ReadLeader reads what a request is compared with when it names a term or a revision that
// the view has not reached: the create revision of a service's leader key, 0 if
// nobody leads, and the store's revision, both read linearizably after the request
// came.
type ReadLeader func(service string) (term, revision int64, err error)

// Vouch checks what a request says of the store before a core decides on it: its
// sender's term, and the revisions that it knows. A caller may say anything, and a
// core that believed in a term or revision that does not exist yet would refuse
// everybody else from then on. Revision is what the view has reached, term gives the
// terms in it, and read is called only where the view cannot tell.
//
// Vouch returns what the core must be told first, nil for nothing. A term that the
// view is past is left to the core, which knows it.
func Vouch(request any, revision int64, term func(service string) int64, read ReadLeader) (model.Event, error) {
	var service string
	var claimed, known int64
	if from, ok := request.(FromLeader); ok {
		service, claimed = from.From()
	}
	if tells, ok := request.(Tells); ok {
		known = tells.Known()
	}
	newer := claimed > revision && term(service) != claimed
	if !newer && known <= revision {
		return nil, nil
	}
	leads, reached, err := read(cmp.Or(service, model.ServiceRegistry))
	switch {
	case err != nil:
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "the leader of %s cannot be read, to compare its term: not applied", service).Because(err)
	case newer && claimed != leads:
		return nil, fault.New(fault.Precondition, fault.ReasonLowerTerm, "the %s of term %d does not lead, that of term %d does", service, claimed, leads)
	case known > reached:
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the request names revision %d, and the store has reached %d", known, reached)
	case newer:
		return model.Leads{Service: service, Term: claimed}, nil
	}
	return nil, nil
}

// The bounds of reading a leader key: one read at a time and service, which is tried
// so often, for so long at first and then twice as long each time.
const (
	readAttempts = 3
	readFor      = 300 * time.Millisecond
)

// leaderKeys reads leader keys for whoever waits. A read begins after all that it
// answers have asked, so it is linearizable for each, and there is one at a time: many
// callers that make up terms cost etcd little.
type leaderKeys struct {
	store store.Store
	space keyspace.Space

	mu   sync.Mutex
	next map[string]*reading // of a service: to begin once that under way is done
	busy map[string]bool
}

type reading struct {
	done           chan struct{}
	term, revision int64
	err            error
}

func newLeaderKeys(s store.Store, space keyspace.Space) *leaderKeys {
	return &leaderKeys{store: s, space: space, next: map[string]*reading{}, busy: map[string]bool{}}
}

// read returns the term in a service's leader key and the store's revision.
func (k *leaderKeys) read(ctx context.Context, service string) (term, revision int64, err error) {
	k.mu.Lock()
	r := k.next[service]
	if r == nil {
		r = &reading{done: make(chan struct{})}
		k.next[service] = r
	}
	if !k.busy[service] {
		k.busy[service] = true
		go k.run(service)
	}
	k.mu.Unlock()
	select {
	case <-r.done:
		return r.term, r.revision, r.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// run reads until nobody waits.
func (k *leaderKeys) run(service string) {
	for {
		k.mu.Lock()
		r := k.next[service]
		delete(k.next, service)
		k.busy[service] = r != nil
		k.mu.Unlock()
		if r == nil {
			return
		}
		r.term, r.revision, r.err = k.page(service)
		close(r.done)
	}
}

// page reads once, of another member of etcd where the first does not answer.
func (k *leaderKeys) page(service string) (term, revision int64, err error) {
	key := k.space.Key(model.LeaderRef(service))
	for attempt, patience := 1, readFor; ; attempt, patience = attempt+1, 2*patience {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		page, err := k.store.Page(ctx, store.PageRequest{From: key, To: key + "\x00", KeysOnly: true})
		cancel()
		switch {
		case err == nil && len(page.KVs) > 0:
			return page.KVs[0].Create, page.Revision, nil
		case err == nil:
			return 0, page.Revision, nil
		case attempt == readAttempts || !errors.Is(err, store.ErrAmbiguous):
			return 0, 0, err
		}
	}
}
