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
	found := e.statuses(ctx, each, e.members.all) // excluded ones as well
	for id, m := range e.listed(ctx, each) {
		i := slices.IndexFunc(found, func(s memberStatus) bool { return s.id == id })
		if i < 0 { // its endpoint does not answer
			i = slices.IndexFunc(found, func(s memberStatus) bool {
				return slices.Contains(m.ClientURLs,
					withScheme(s.Endpoint))
			})
		}
		if i < 0 { // it is not configured as an endpoint
			i, found = len(found), append(found, e.statuses(ctx, each, m.ClientURLs[:min(1, len(m.ClientURLs))])...)
			if i == len(found) {
				found = append(found, memberStatus{Member: Member{Error: "the member has not started"}})
			}
		}
		found[i].Name, found[i].Learner = m.Name, found[i].Learner || m.IsLearner
	}
	seen := map[uint64]bool{}
	for _, s := range found {
		if seen[s.id] {
			continue // two endpoints of one member
		}
		seen[s.id] = s.id != 0
		h.Members = append(h.Members, s.Member)
		h.Revision = max(h.Revision, s.revision)
		h.Alarms = append(h.Alarms, s.alarms...)
	}
	slices.SortStableFunc(h.Members, func(a, b Member) int {
		return slices.Compare([]string{a.Name, a.Endpoint}, []string{b.Name, b.Endpoint})
	})
	slices.Sort(h.Alarms)
	h.Alarms = slices.Compact(h.Alarms)
	h.Read, h.ReadError = e.probe(ctx, each)
	limited, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	h.Compacted = e.compacted(limited)
	return h
}

// memberStatus is the answer of one endpoint. Without an answer the ID is 0.
type memberStatus struct {
	Member
	id       uint64
	revision int64
	alarms   []string
}

// statuses queries endpoints concurrently. The answers are in the order of endpoints.
func (e *Etcd) statuses(ctx context.Context, each time.Duration, endpoints []string) []memberStatus {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	list := make([]memberStatus, len(endpoints))
	var wait sync.WaitGroup
	for i, endpoint := range endpoints {
		wait.Go(func() {
			s, err := e.client.Status(ctx, endpoint)
			if err != nil {
				list[i].Member = Member{Endpoint: endpoint, Error: err.Error()}
				return
			}
			list[i] = memberStatus{id: s.Header.MemberId, revision: s.Header.Revision, Member: Member{
				Endpoint: endpoint, Learner: s.IsLearner, Leads: s.Leader == s.Header.MemberId, HasLeader: s.Leader != 0,
				Version: s.Version, Size: s.DbSize, InUse: s.DbSizeInUse, Quota: s.DbSizeQuota, Index: s.RaftAppliedIndex,
			}}
			for _, text := range s.Errors {
				if alarm := alarmIn(text); alarm != "" {
					list[i].alarms = append(list[i].alarms, alarm)
				}
			}
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
