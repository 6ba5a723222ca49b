package loop

import (
	"context"
	"errors"
	"sync/atomic"

	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// FromLeader is a request from the leader of another service. Its term is valid only if
// the service's leader key has that create revision.
type FromLeader interface {
	From() (service string, term int64)
}

// NamesRevision is a request whose sender knows that the store has reached a revision. A
// view that does not reach it is lagging, together with the etcd member that it watches.
type NamesRevision interface{ Known() int64 }

// ReadLeader reads the create revision of a service's leader key, 0 if no replica leads,
// and the revision of the store. Both are read linearizably after the call.
type ReadLeader func(service string) (term, revision int64, err error)

// CheckClaims checks the sender's term and the known revision in a request before a core
// decides on it. A caller may send any number, and a core that accepted a term or revision
// from the future would refuse everybody else from then on. Revision is what the view has
// reached, term returns the terms in it, and read is called only if the view is behind.
//
// CheckClaims returns an event that the core must receive first; nil for none. Terms that
// the view has passed are left to the core, which knows them.
func CheckClaims(request any, revision int64, term func(service string) int64, read ReadLeader) (model.Event, error) {
	service := model.ServiceRegistry
	var claimed, known int64
	if from, ok := request.(FromLeader); ok {
		service, claimed = from.From()
	}
	if r, ok := request.(NamesRevision); ok {
		known = r.Known()
	}
	newer := claimed > revision && term(service) != claimed
	if !newer && known <= revision {
		return nil, nil
	}
	leads, reached, err := read(service)
	switch {
	case err != nil:
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable,
			"cannot read the leader key of %s to check the term; the request was not applied", service).Because(err)
	case newer && claimed != leads:
		return nil, fault.New(fault.Precondition, fault.ReasonLowerTerm, "the %s of term %d does not lead; its term is %d",
			service, claimed, leads)
	case known > reached:
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid,
			"the request names revision %d, but the store has reached %d", known, reached)
	case newer:
		return model.LeaderTerm{Service: service, Term: claimed}, nil
	}
	return nil, nil
}

// readAttempts bounds the attempts at one read of a leader key.
const readAttempts = 3

// leaderReader reads leader keys, one at a time. Callers share a read that began after
// all of them asked, so it is linearizable for each of them. Many callers with invented
// terms therefore cost etcd little.
type leaderReader struct {
	store store.Store
	space keyspace.Space
	// reading has one element while a read is under way. It guards latest.
	reading chan struct{}
	latest  map[string]leaderRead
	begun   atomic.Int64 // number of reads so far
}

// leaderRead is the outcome of a read, with its number.
type leaderRead struct {
	number, term, revision int64
	err                    error
}

func newLeaderReader(s store.Store, space keyspace.Space) *leaderReader {
	return &leaderReader{store: s, space: space, reading: make(chan struct{}, 1), latest: map[string]leaderRead{}}
}

// read returns the term in a service's leader key and the store's revision.
func (l *leaderReader) read(ctx context.Context, service string) (term, revision int64, err error) {
	asked := l.begun.Load()
	select {
	case l.reading <- struct{}{}:
		defer func() { <-l.reading }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	r := l.latest[service]
	if r.number <= asked {
		r = leaderRead{number: l.begun.Add(1)}
		r.term, r.revision, r.err = l.page(ctx, service)
		if ctx.Err() == nil { // an error may be due to this caller alone
			l.latest[service] = r
		}
	}
	return r.term, r.revision, r.err
}

// page reads the key. If an etcd member does not answer, the next attempt asks another.
func (l *leaderReader) page(ctx context.Context, service string) (term, revision int64, err error) {
	key := l.space.Key(model.LeaderRef(service))
	for n := 1; ; n++ {
		var page store.Page
		err := attempt(ctx, n, func(ctx context.Context) (err error) {
			page, err = l.store.Page(ctx, store.PageRequest{From: key, To: key + "\x00", KeysOnly: true})
			return err
		})
		if len(page.KVs) > 0 {
			term = page.KVs[0].Create
		}
		if n == readAttempts || !errors.Is(err, store.ErrAmbiguous) {
			return term, page.Revision, err
		}
	}
}
