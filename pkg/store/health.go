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

	"berth.dev/api/rpc"
)

// probes is the number of reads from which Inspect takes the median.
const probes = 5

// probeKey is never written. It begins as all keys of Berth do, which a user of etcd must be allowed
// to read.
const probeKey = "/berth/probe"

// Health describes an etcd cluster for people. No decision may depend on it.
type Health struct {
	// Members has the members that etcd lists, in the order of their names. It also has the
	// endpoints that did not answer and that no listed member claims.
	Members []Member `json:"members"`
	// ClusterID is the ID of the cluster in hexadecimal digits, or empty if no member answered.
	ClusterID string `json:"clusterId,omitempty"`
	// Alarms has the active alarms, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`
	// Revision is the newest revision that a member reported. Compacted is the oldest
	// revision that can still be read, 0 if etcd has never compacted, or NotKnown.
	Revision  int64 `json:"revision"`
	Compacted int64 `json:"compacted"`
	// Refused is why etcd refuses the login of this process, or empty. If it is set, the members
	// have answered, and nothing else is known.
	Refused string `json:"refused,omitempty"`
	// Read is the median duration of a linearizable read. ReadError is the reason why a
	// read failed, for example a lost quorum.
	Read      time.Duration `json:"readNanos"`
	ReadError string        `json:"readError,omitempty"`
}

// NotKnown is Health.Compacted if etcd does not permit the user to read the history.
const NotKnown = -1

// Member is a member of an etcd cluster.
type Member struct {
	Name     string `json:"name,omitempty"`
	Endpoint string `json:"endpoint"`
	// Error is the reason why the member did not answer. If it is set, the fields below are
	// unknown.
	Error string `json:"error,omitempty"`
	// Learner is set if the member has no vote. Leads is set if the member leads, and
	// HasLeader if it knows a leader.
	Learner   bool   `json:"learner,omitempty"`
	Leads     bool   `json:"leads,omitempty"`
	HasLeader bool   `json:"hasLeader,omitempty"`
	Version   string `json:"version,omitempty"`
	// Size is the size of the member's database in bytes, InUse is the part of it in use,
	// and Quota is its maximum. They are 0 if the member is too old to report them.
	Size  int64 `json:"size,omitempty"`
	InUse int64 `json:"inUse,omitempty"`
	Quota int64 `json:"quota,omitempty"`
	// Index is the last log entry that the member has applied.
	Index uint64 `json:"index,omitempty"`
}

// withScheme returns an endpoint in the form in which members list their client URLs.
func withScheme(endpoint string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "http://" + endpoint
}

// Inspect queries every endpoint and every member, each with the given timeout. It
// returns no error: a member that does not answer is part of the result.
func (e *Etcd) Inspect(ctx context.Context, each time.Duration) Health {
	var h Health
	found := e.statuses(ctx, each, e.members.all) // also excluded members
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
	h.ClusterID = e.ClusterID()
	var err error
	if h.Read, err = e.probe(ctx, each); err != nil {
		h.ReadError = err.Error()
	}
	if refused := e.refusal(probeKey, err); refused != nil {
		h.Refused = refused.Error()
		return h
	}
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

// statuses queries endpoints concurrently. It returns the answers in the order of the
// endpoints.
func (e *Etcd) statuses(ctx context.Context, each time.Duration, endpoints []string) []memberStatus {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	list := make([]memberStatus, len(endpoints))
	var wait sync.WaitGroup
	for i, endpoint := range endpoints {
		wait.Go(func() {
			s, err := e.status(ctx, endpoint)
			if err != nil {
				list[i].Member = Member{Endpoint: endpoint, Error: rpc.Cause(err)}
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

// status returns the status of the member at an endpoint. In contrast to the call of the client,
// it fails at once if no process listens there.
func (e *Etcd) status(ctx context.Context, endpoint string) (*etcdserverpb.StatusResponse, error) {
	conn, err := e.client.Dial(endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
}

// listed returns the members by ID, as one member knows them. This works even without a
// quorum.
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

// probe reads one key several times and returns the median duration of a read, or the error of a
// read. etcd answers a read that it does not permit only after the read has passed the quorum.
func (e *Etcd) probe(ctx context.Context, each time.Duration) (time.Duration, error) {
	var took []time.Duration
	for range probes {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, each)
		_, err := e.client.Get(limited, probeKey)
		cancel()
		if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[probes/2], nil
}

// compacted returns the oldest revision that can still be read, 0 if etcd has never compacted, or
// NotKnown. If the first revision was compacted, a watch from the first revision receives the
// oldest one.
func (e *Etcd) compacted(ctx context.Context) int64 {
	_, err := e.client.Get(ctx, probeKey, clientv3.WithRev(1))
	switch known := rpctypes.Error(err); {
	case errors.Is(known, rpctypes.ErrPermissionDenied):
		return NotKnown
	case !errors.Is(known, rpctypes.ErrCompacted):
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
