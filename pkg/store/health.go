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

// probes is the number of reads whose median is the latency.
const probes = 5

// probeKey is never written.
const probeKey = "/berth-probe"

// Health describes an etcd cluster for people. It is no basis for decisions.
type Health struct {
	// Members in the order of their names: those that etcd lists, and endpoints that did
	// not answer and so cannot be identified.
	Members []Member `json:"members"`
	// Alarms are the active alarms, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`
	// Revision is the newest revision that a member reported. Compacted is the oldest one
	// that can still be read, 0 if etcd has never compacted.
	Revision  int64 `json:"revision"`
	Compacted int64 `json:"compacted"`
	// Read is the median duration of a linearizable read. ReadError is the reason why a
	// read failed, for example a lost quorum.
	Read      time.Duration `json:"readNanos"`
	ReadError string        `json:"readError,omitempty"`
}

// Member is a member of an etcd cluster.
type Member struct {
	Name     string `json:"name,omitempty"`
	Endpoint string `json:"endpoint"`
	// Error is the reason why it did not answer. The fields below are then unknown.
	Error string `json:"error,omitempty"`
	// Learner has no vote. Leads reports that it leads, HasLeader that it knows a leader.
	Learner   bool   `json:"learner,omitempty"`
	Leads     bool   `json:"leads,omitempty"`
	HasLeader bool   `json:"hasLeader,omitempty"`
	Version   string `json:"version,omitempty"`
	// Size of its database in bytes, the part in use, and the quota: 0 if the member is
	// too old to report it.
	Size  int64 `json:"size,omitempty"`
	InUse int64 `json:"inUse,omitempty"`
	Quota int64 `json:"quota,omitempty"`
	// Index is the last log entry that it has applied.
	Index uint64 `json:"index,omitempty"`
}

// withScheme returns an endpoint in the form in which members list their own.
func withScheme(endpoint string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "http://" + endpoint
}

// Inspect queries every endpoint and every member, each with the given timeout. It never
// fails: a member that does not answer is part of the result.
func (e *Etcd) Inspect(ctx context.Context, each time.Duration) Health {
	var h Health
	endpoints := e.members.all // excluded ones as well
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
			// No endpoint is this member, or its endpoint does not answer. The member's own
			// URLs are another way to reach it.
			i = slices.IndexFunc(endpoints, func(endpoint string) bool { return slices.Contains(m.ClientURLs, withScheme(endpoint)) })
			if i < 0 {
				more := e.statuses(ctx, each, m.ClientURLs[:min(1, len(m.ClientURLs))])
				if len(more) == 0 {
					more = []memberStatus{{err: errors.New("the member has not started")}}
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
	h.Alarms, _ = e.alarmList(limited) // on an error there is no quorum, which ReadError shows
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

// statuses queries endpoints concurrently. The answers are in the order of endpoints.
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

// listed returns the members by ID, as one member knows them, even without a quorum.
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

// probe reads one key several times and returns the median duration.
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

// compacted returns the oldest revision that is kept. A watch from the first revision
// receives it, if the first one was compacted.
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
