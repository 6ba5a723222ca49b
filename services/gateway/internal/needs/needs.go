// Package needs finds out what a gateway lacks: an etcd that answers, a replica of each service
// that answers, and services that belong to the gateway's cluster and use the etcd that the gateway
// reads. A gateway that lacks something says so in /readyz, in its log, in the findings and in the
// list of leaders. While it cannot read the events of its services, it refuses to read events: an
// answer without events would be wrong.
//
//	etcd ─────── Check ─┐             ┌─▶ /readyz, ListLeaders
//	             every ─┼─▶ reasons ──┼─▶ log, findings
//	replicas ──── Poll ─┘   second    └─▶ reads of events
package needs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/gateway/internal/leaders"
)

// The kinds of the findings of a gateway. KindNotReady is about the gateway itself. KindOtherEtcd
// is about a replica that uses another etcd cluster than the gateway and the other replicas of its
// service.
const (
	KindNotReady  = "GATEWAY_NOT_READY"
	KindOtherEtcd = "OTHER_ETCD"
)

const (
	// every is the time between two rounds of checks.
	every = time.Second
	// lostAfter is how long something must be missing before a gateway that had it counts as not
	// ready. A failover and a restart of a service take less.
	lostAfter = 5 * time.Second
)

// Options are the options of New.
type Options struct {
	Etcd *store.Etcd
	// Key is a key that the gateway must be able to read.
	Key string
	// Replicas calls the replicas of each service.
	Replicas *leaders.Server
	// Cluster is the name of the gateway's cluster, and Replica is the ID of the gateway.
	Cluster, Replica string
	Log              *slog.Logger
}

// Needs knows what a gateway lacks. The zero value is not valid.
type Needs struct {
	Options
	first chan struct{} // closed after the first round

	mu sync.Mutex
	// missing has what was never there, or is missing for at least lostAfter. lost has, for each
	// kind of need that was there, the time since which it is missing, or the zero time.
	missing []need
	lost    map[kind]time.Time
	// others has the replicas that use another etcd cluster.
	others []need
}

// kind is a kind of need: etcd, sameCluster or the name of a service.
type kind string

const (
	etcd        kind = "etcd"
	sameCluster kind = "the same cluster"
)

// kinds are all kinds of needs.
var kinds = []kind{etcd, sameCluster, model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner}

// need is something that a gateway lacks, or a replica that uses another etcd cluster.
type need struct {
	kind    kind
	replica string
	since   time.Time
	reason  string
}

// New returns the needs of a gateway. The caller must call Run.
func New(o Options) *Needs {
	return &Needs{Options: o, first: make(chan struct{}), lost: map[kind]time.Time{}}
}

// Run checks once a second what is missing, until ctx ends. It logs each change.
func (n *Needs) Run(ctx context.Context) error {
	begun := sync.OnceFunc(func() { close(n.first) })
	was, wasOther := "", ""
	for {
		var wait sync.WaitGroup
		wait.Go(func() { n.Replicas.Poll(ctx) })
		unusable := n.Etcd.Check(ctx, n.Key)
		wait.Wait()
		if ctx.Err() != nil {
			return nil
		}
		n.update(time.Now(), unusable)
		begun()
		now := strings.Join(n.Reasons(), "; ")
		switch {
		case now == was:
		case now == "":
			n.Log.Info("ready")
		default:
			n.Log.Warn("not ready", "reason", now)
		}
		other := ""
		for _, o := range n.others { // only this goroutine writes it
			other += o.replica + ": " + o.reason + "; "
		}
		if other != wasOther && other != "" {
			n.Log.Warn("replicas use another etcd cluster", "replicas", strings.TrimSuffix(other, "; "))
		}
		was, wasOther = now, other
		if store.Sleep(ctx, every) != nil {
			return nil
		}
	}
}

// update stores what is missing after a round in which etcd could not be used for a reason, or was
// used.
func (n *Needs) update(now time.Time, unusable error) {
	missing, others, compared := n.compare(unusable)
	if unusable != nil {
		missing = append(missing, need{kind: etcd, reason: unusable.Error()})
	}
	for _, service := range model.Services {
		if reach := n.Replicas.Reach(service); reach.Answered == 0 {
			missing = append(missing, need{kind: kind(service), reason: reach.Fault(service).Message})
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.missing
	n.missing = nil
	for _, k := range kinds {
		at := slices.IndexFunc(missing, func(m need) bool { return m.kind == k })
		since, was := n.lost[k]
		switch {
		case at < 0 && k == sameCluster && !compared: // not known
		case at < 0:
			n.lost[k] = time.Time{}
		case was && since.IsZero():
			n.lost[k] = now
		case !was || now.Sub(since) >= lostAfter:
			n.missing = append(n.missing, missing[at].sinceIn(before, now))
		}
	}
	for i, o := range others {
		others[i] = o.sinceIn(n.others, now)
	}
	n.others = others
}

// sinceIn returns the need with the time since which it is in a list, or now.
func (m need) sinceIn(before []need, now time.Time) need {
	m.since = now
	for _, b := range before {
		if b.kind == m.kind && b.replica == m.replica {
			m.since = b.since
		}
	}
	return m
}

// compare compares the cluster of the gateway, and the etcd cluster that it reads unless that is
// unusable, with those of the replicas. missing has a need if a replica is of another cluster, or
// if no replica of a service uses the etcd cluster of the gateway. Otherwise others has the replicas
// that use another one. compared reports whether the etcd clusters were compared.
func (n *Needs) compare(unusable error) (missing, others []need, compared bool) {
	own := n.Etcd.ClusterID()
	var names, differ []string
	for _, service := range model.Services {
		var other []need
		same := false
		for _, r := range n.Replicas.Last(service) {
			id, name := r.GetEtcdCluster(), r.GetCluster()
			if name != "" && name != n.Cluster {
				names = append(names, fmt.Sprintf("%s at %s is of the cluster %q", r.GetId(), r.GetAddress(), name))
			}
			switch {
			case id == "" || unusable != nil:
			case id == own:
				same = true
			default:
				other = append(other, need{kind: sameCluster, replica: r.GetId(), reason: id})
			}
		}
		compared = compared || same || len(other) > 0
		for _, o := range other {
			if same {
				o.reason = fmt.Sprintf("it uses the etcd cluster %s, and other replicas of %s use %s", o.reason, service, own)
				others = append(others, o)
			} else {
				differ = append(differ, o.replica+" uses "+o.reason)
			}
		}
	}
	switch {
	case len(names) > 0:
		names = append([]string{fmt.Sprintf("this gateway is of the cluster %q", n.Cluster)}, names...)
		missing = append(missing, need{kind: sameCluster, reason: strings.Join(names, ", ")})
	case len(differ) > 0:
		missing = append(missing, need{kind: sameCluster,
			reason: fmt.Sprintf("this gateway reads the etcd cluster %s, %s", own, strings.Join(differ, ", "))})
	}
	return missing, others, compared
}

// Reasons returns why the gateway is not ready. It is empty if the gateway is ready.
func (n *Needs) Reasons() []string {
	select {
	case <-n.first:
	default:
		return []string{"etcd and the services are not checked yet"}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var reasons []string
	for _, m := range n.missing {
		reasons = append(reasons, m.reason)
	}
	return reasons
}

// Ready returns nil if the gateway is ready, and otherwise an error of kind Unavailable with the
// reasons. It does not wait.
func (n *Needs) Ready() error { return unready(n.Reasons()) }

// EventsReadable returns nil if the gateway can read the events of its services, and otherwise an
// error of kind Unavailable with the reasons. It waits for the first round of checks.
func (n *Needs) EventsReadable(ctx context.Context) error {
	select {
	case <-n.first:
	case <-ctx.Done():
		return ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var reasons []string
	for _, m := range n.missing {
		if m.kind == etcd || m.kind == sameCluster {
			reasons = append(reasons, m.reason)
		}
	}
	return unready(reasons)
}

func unready(reasons []string) error {
	if len(reasons) == 0 {
		return nil
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the gateway is not ready: %s",
		strings.Join(reasons, "; "))
}

// Findings returns a finding for each reason why the gateway is not ready, and for each replica
// that uses another etcd cluster.
func (n *Needs) Findings() (list []*berthv1.Finding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	add := func(kind, object string, m need, action string) {
		list = append(list, &berthv1.Finding{Kind: kind, Object: object, Since: wire.Timestamp(m.since),
			Service: model.ServiceGateway, Message: m.reason, Action: action})
	}
	for _, m := range n.missing {
		add(KindNotReady, n.Replica, m, actions[m.kind])
	}
	for _, o := range n.others {
		add(KindOtherEtcd, o.replica, o,
			"The gateways send calls to it if it leads. Correct its --etcd-endpoints and restart it.")
	}
	return list
}

// actions has what the gateway does and what an operator should do, by the kind of the need.
var actions = map[kind]string{
	etcd: "The gateway reads no events and no output of ended workers. Check etcd and the gateway's options --etcd-….",
	sameCluster: "The gateway reads no events and no output of ended workers. " +
		"Compare --cluster and --etcd-endpoints of the gateway with those of the services.",
	model.ServiceRegistry:      "Calls to the registry wait. Start its replicas, and check the gateway's --registry.",
	model.ServiceExecutorState: "Calls to executor-state wait. Start its replicas, and check the gateway's --executor-state.",
	model.ServiceAssigner:      "Calls to the assigner wait. Start its replicas, and check the gateway's --assigner.",
}
