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

// FromLeader is a request from the leader of another service. The term in the request is
// valid only if it is the create revision of that service's leader key.
type FromLeader interface {
	From() (service string, term int64)
}

// NamesRevision is a request whose sender knows that the store has reached a revision. If
// the view does not reach this revision, the etcd member that the view watches is behind.
type NamesRevision interface{ Known() int64 }

// ReadLeader returns the create revision of a service's leader key, or 0 if no replica
// leads, and the revision of the store. It reads both linearizably after the call began.
type ReadLeader func(service string) (term, revision int64, err error)

// CheckClaims checks the sender's term and the known revision in a request before a core
// decides on the request. A caller may send any number. If a core accepted a term or
// revision from the future, it would refuse all other callers from then on. Revision is
// the revision that the view has reached, and term returns the terms in the view.
// CheckClaims calls read only if the view is behind the request.
//
// CheckClaims returns an event that the core must receive before the request, or nil. It
// does not check a term that the view has passed: the core knows these terms and checks
// them itself.
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

// readAttempts is the maximum number of attempts at one read of a leader key.
const readAttempts = 3

// leaderReader reads leader keys, one at a time. Several callers share one read if it
// began after each of them called, so the read is linearizable for each caller. Therefore
// many callers with invented terms cause few reads of etcd.
type leaderReader struct {
	store store.Store
	space keyspace.Space
	// reading contains one element during a read. It guards latest.
	reading chan struct{}
	latest  map[string]leaderRead
	begun   atomic.Int64 // number of reads so far
}

// leaderRead is the result of a read, with the number of the read.
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
		if ctx.Err() == nil { // otherwise this caller's context may have caused the error
			l.latest[service] = r
		}
	}
	return r.term, r.revision, r.err
}

// page reads the key. If an etcd member does not answer, the next attempt uses another
// member.
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
