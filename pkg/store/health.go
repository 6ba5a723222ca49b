package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// probes is how many reads the latency of etcd is the median of.
const probes = 5

// probeKey is one that nobody writes.
const probeKey = "/berth-probe"

// Health is how a cluster of etcd is, for people and not for decisions.
type Health struct {
	// Members in the order of their names: those that etcd lists, and endpoints that
	// did not answer and so cannot be told to be one of them.
	Members []Member `json:"members"`
	// Alarms that are raised, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`
	// Revision is the newest that a member told of, and Compacted the oldest that can
	// still be read: 0 while nothing was ever compacted.
	Revision  int64 `json:"revision"`
	Compacted int64 `json:"compacted"`
	// Read is how long a linearizable read takes, the median of some; ReadError why
	// there is none, which is how a lost quorum shows.
	Read      time.Duration `json:"readNanos"`
	ReadError string        `json:"readError,omitempty"`
}

// Member of a cluster of etcd.
type Member struct {
	Name     string `json:"name,omitempty"`
	Endpoint string `json:"endpoint"`
	// Error says why it did not answer; what follows is then not known.
	Error string `json:"error,omitempty"`
	// Learner has no vote. Leads says that it leads, HasLeader that it knows who does.
	Learner   bool   `json:"learner,omitempty"`
	Leads     bool   `json:"leads,omitempty"`
	HasLeader bool   `json:"hasLeader,omitempty"`
	Version   string `json:"version,omitempty"`
	// Size of its database, bytes, how much of it is in use, and the quota: 0 where
	// the member is too old to tell.
	Size  int64 `json:"size,omitempty"`
	InUse int64 `json:"inUse,omitempty"`
	Quota int64 `json:"quota,omitempty"`
	// Index is how far it has applied the log, in entries.
	Index uint64 `json:"index,omitempty"`
}

// withScheme is an endpoint as members list their own.
func withScheme(endpoint string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "http://" + endpoint
}

// Inspect asks every endpoint and every member how it is, each within the time
// that is given, and never fails: what does not answer is part of the picture.
func (e *Etcd) Inspect(ctx context.Context, each time.Duration) Health {
	var h Health
	endpoints := e.steer.all // those that are left out too
	found := e.statuses(ctx, each, endpoints)
	known := map[uint64]int{}
	for i, s := range found {
		if s.err == nil {
			known[s.Header.MemberId] = i
		}
	}
	for id, m := range e.listed(ctx, each) {
		i, answered := known[id]
		if !answered {
			// None of the endpoints is it, or the one that is does not answer. Where it
			// says that it serves is another way to it.
			i = slices.IndexFunc(endpoints, func(endpoint string) bool { return slices.Contains(m.ClientURLs, withScheme(endpoint)) })
			if i < 0 {
				more := e.statuses(ctx, each, m.ClientURLs[:min(1, len(m.ClientURLs))])
				if len(more) == 0 {
					more = []memberStatus{{err: errors.New("it has not started")}}
				}
				i, found = len(found), append(found, more...)
			}
		}
		found[i].name, found[i].learner = m.Name, m.IsLearner
	}
	seen := map[uint64]bool{}
	for _, s := range found {
		if s.err == nil && seen[s.Header.MemberId] {
			continue // two endpoints of one member
		}
		member := s.member()
		if s.err == nil {
			seen[s.Header.MemberId] = true
			h.Revision = max(h.Revision, s.Header.Revision)
		}
		h.Members = append(h.Members, member)
	}
	slices.SortStableFunc(h.Members, func(a, b Member) int {
		return slices.Compare([]string{a.Name, a.Endpoint}, []string{b.Name, b.Endpoint})
	})
	h.Read, h.ReadError = e.probe(ctx, each)
	limited, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	h.Alarms, _ = e.alarmList(limited) // whoever cannot tell has no quorum, which is told above
	h.Compacted = e.compacted(limited)
	return h
}

type memberStatus struct {
	*clientv3.StatusResponse
	endpoint, name string
	learner        bool
	err            error
}

func (s memberStatus) member() Member {
	m := Member{Name: s.name, Endpoint: s.endpoint, Learner: s.learner}
	if s.err != nil {
		m.Error = s.err.Error()
		return m
	}
	m.Learner = s.learner || s.IsLearner
	m.Leads, m.HasLeader = s.Leader == s.Header.MemberId && s.Leader != 0, s.Leader != 0
	m.Version, m.Size, m.InUse, m.Quota, m.Index = s.Version, s.DbSize, s.DbSizeInUse, s.DbSizeQuota, s.RaftAppliedIndex
	return m
}

// statuses asks endpoints at once; the answers are in their order.
func (e *Etcd) statuses(ctx context.Context, each time.Duration, endpoints []string) []memberStatus {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	list := make([]memberStatus, len(endpoints))
	var wait sync.WaitGroup
	for i, endpoint := range endpoints {
		wait.Go(func() {
			status, err := e.client.Status(ctx, endpoint)
			list[i] = memberStatus{StatusResponse: status, endpoint: endpoint, err: err}
		})
	}
	wait.Wait()
	return list
}

// listed is the members by id, as some member knows them: without a quorum too.
func (e *Etcd) listed(ctx context.Context, each time.Duration) map[uint64]*etcdserverpb.Member {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	resp, err := e.client.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil
	}
	members := map[uint64]*etcdserverpb.Member{}
	for _, m := range resp.Members {
		members[m.ID] = m
	}
	return members
}

// probe reads one key several times and answers the median time.
func (e *Etcd) probe(ctx context.Context, each time.Duration) (time.Duration, string) {
	var took []time.Duration
	for range probes {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, each)
		_, err := e.client.Get(limited, probeKey)
		cancel()
		if err != nil {
			return 0, err.Error()
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[probes/2], ""
}

// compacted asks for the past: a watch from the first revision is told which is
// the oldest that is left, if the first one is not.
func (e *Etcd) compacted(ctx context.Context) int64 {
	if _, err := e.client.Get(ctx, probeKey, clientv3.WithRev(1)); !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return 0
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range e.client.Watch(ctx, probeKey, clientv3.WithRev(1)) {
		if answer.CompactRevision > 0 {
			return answer.CompactRevision
		}
	}
	return 0
}
