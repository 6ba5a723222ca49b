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
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/gateway/internal/leaders"
)

// The kinds of the findings of a gateway. FindingNotReady is about the gateway itself. FindingOtherEtcd
// is about a replica that uses another etcd than the gateway and the other replicas of its service,
// and FindingCutOff about one to which no gateway or no etcd answers.
const (
	FindingNotReady  = "GATEWAY_NOT_READY"
	FindingOtherEtcd = "OTHER_ETCD"
	FindingCutOff    = "REPLICA_CUT_OFF"
)

const (
	// every is the time between two rounds of checks, and soon the time while the gateway is not
	// ready.
	every, soon = time.Second, 200 * time.Millisecond
	// lostAfter is how long something must be missing before a gateway that had it counts as not
	// ready. A failover and a restart of a service take less.
	lostAfter = 5 * time.Second
)

// Options are the options of New.
type Options struct {
	// Expired says that the certificate of the gateway has expired or is not valid yet; nil without
	// one.
	Expired func() error
	Etcd    *store.Etcd
	// Space has the keys of the gateway's cluster.
	Space keyspace.Space
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
	// others has the replicas that use another etcd or are cut off. last is the time of the last round.
	others []need
	last   time.Time
}

// kind is a kind of need: certificate, etcd, sameCluster or the name of a service.
type kind string

const (
	certificate kind = "certificate"
	etcd        kind = "etcd"
	sameCluster kind = "the same cluster"
	// cutOff is what a replica lacks, and not the gateway.
	cutOff kind = "cut off"
)

// kinds are all kinds of needs.
var kinds = []kind{certificate, etcd, sameCluster, model.ServiceRegistry, model.ServiceExecutorState,
	model.ServiceAssigner}

// need is something that the gateway or a replica lacks.
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

// Run checks once a second what is missing, and more often while the gateway is not ready, until
// ctx ends. It logs each change.
func (n *Needs) Run(ctx context.Context) error {
	begun := sync.OnceFunc(func() { close(n.first) })
	var readiness process.ReadinessLog
	wasOther := ""
	for {
		var wait sync.WaitGroup
		wait.Go(func() { n.Replicas.Poll(ctx) })
		unusable := n.Etcd.Check(ctx, n.Space.Segments())
		wait.Wait()
		var holders map[string]string
		if unusable == nil {
			holders = n.holders(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		n.update(time.Now(), unusable, holders)
		begun()
		now := strings.Join(n.Reasons(), "; ")
		readiness.Set(n.Log, now)
		other := ""
		for _, o := range n.lasting() {
			if o.kind == sameCluster { // a replica that is cut off logs that itself
				other += o.replica + ": " + o.reason + "; "
			}
		}
		if other != wasOther && other != "" {
			n.Log.Warn("replicas use another etcd", "replicas", strings.TrimSuffix(other, "; "))
		}
		wasOther = other
		pause := every
		if now != "" {
			pause = soon
		}
		if store.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// holders returns the instance of the leader of each service in etcd, or nil if they cannot be read.
func (n *Needs) holders(ctx context.Context) map[string]string {
	keys := map[string]string{}
	for _, service := range model.Services {
		keys[n.Space.Key(model.LeaderRef(service))] = service
	}
	sorted := slices.Sorted(maps.Keys(keys))
	ctx, cancel := context.WithTimeout(ctx, store.DefaultCheck)
	defer cancel()
	page, err := n.Etcd.Page(ctx, store.PageRequest{From: sorted[0], To: sorted[len(sorted)-1] + "\x00"})
	if err != nil {
		return nil
	}
	holders := map[string]string{}
	for _, kv := range page.KVs {
		if holder, err := leader.ParseHolder(kv); err == nil {
			holders[keys[kv.Key]] = holder.Instance
		}
	}
	return holders
}

// update stores what is missing after a round in which etcd could not be used for a reason, or was
// used and has these leaders.
func (n *Needs) update(now time.Time, unusable error, holders map[string]string) {
	missing, others, compared := n.compare(unusable, holders)
	if unusable != nil {
		missing = append(missing, need{kind: etcd, reason: unusable.Error()})
	}
	if n.Expired != nil {
		if err := n.Expired(); err != nil {
			missing = append(missing, need{kind: certificate, reason: fault.Of(err).Message})
		}
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
	n.others, n.last = others, now
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

// compare compares the name of the gateway's cluster with those of the replicas, and the etcd that
// it reads with theirs. missing has a need if a replica is of another cluster, or if the gateway
// reads another etcd than a whole service. Otherwise others has the replicas that use another etcd.
// It also has those that are cut off.
// compared reports whether something showed which etcd the services use.
//
// The IDs of two etcd clusters may be equal: etcd computes them from addresses, such as localhost.
// So a leader must also be the one in the etcd that the gateway reads.
func (n *Needs) compare(unusable error, holders map[string]string) (missing, others []need, compared bool) {
	own := n.Etcd.ClusterID()
	var differ []string
	named := map[string][]string{} // the replicas of each other cluster
	for _, service := range model.Services {
		var other []need
		found, strange, equal := false, false, false
		for _, r := range n.Replicas.Last(service) {
			if lacks := r.GetLacks(); len(lacks) > 0 {
				others = append(others, need{kind: cutOff, replica: r.GetId(), reason: strings.Join(lacks, "; ")})
			}
			id, name := r.GetEtcdCluster(), r.GetCluster()
			leads := r.GetRole() == berthv1.Replica_LEADER && r.GetInstance() != "" && holders != nil
			if name != "" && name != n.Cluster {
				named[name] = append(named[name], r.GetId()+" at "+r.GetAddress())
			}
			switch {
			case unusable != nil:
			case id != "" && id != own:
				other = append(other, need{kind: sameCluster, replica: r.GetId(), reason: r.GetId() + " uses " + id})
			case leads && r.GetInstance() == holders[service]:
				found = true
			case leads:
				strange = true
				other = append(other, need{kind: sameCluster, replica: r.GetId(),
					reason: fmt.Sprintf("it has no leader %s of %s", r.GetId(), service)})
			case id != "":
				equal = true
			}
		}
		compared = compared || found || len(other) > 0
		for _, o := range other {
			if found || equal && !strange {
				o.reason = "it uses another etcd than other replicas of " + service + " and than this gateway"
				others = append(others, o)
			} else {
				differ = append(differ, o.reason)
			}
		}
	}
	switch {
	case len(named) > 0:
		reason := fmt.Sprintf("this gateway is of the cluster %q", n.Cluster)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			replicas := named[name][0]
			if more := len(named[name]) - 1; more > 0 {
				replicas += fmt.Sprintf(" and %d more", more)
			}
			reason += fmt.Sprintf(", and of the cluster %q is %s", name, replicas)
		}
		missing = append(missing, need{kind: sameCluster, reason: reason})
	case len(differ) > 0:
		missing = append(missing, need{kind: sameCluster, reason: fmt.Sprintf(
			"this gateway reads the etcd cluster %s, which is not the one of the services: %s", own, strings.Join(differ, ", "))})
	}
	return missing, others, compared
}

// lasting returns the replicas that have used another etcd, or were cut off, for lostAfter. A leader
// that another one has replaced may not know that yet.
func (n *Needs) lasting() (list []need) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.others {
		if n.last.Sub(o.since) >= lostAfter {
			list = append(list, o)
		}
	}
	return list
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
// that uses another etcd or is cut off.
func (n *Needs) Findings() (list []*berthv1.Finding) {
	others := n.lasting()
	n.mu.Lock()
	defer n.mu.Unlock()
	add := func(kind, object string, m need, action string) {
		list = append(list, &berthv1.Finding{Kind: kind, Object: object, Since: wire.Timestamp(m.since),
			Service: model.ServiceGateway, Message: m.reason, Action: action})
	}
	for _, m := range n.missing {
		add(FindingNotReady, n.Replica, m, actions[m.kind])
	}
	for _, o := range others {
		if o.kind == cutOff {
			add(FindingCutOff, o.replica, o,
				"It cannot lead, or its calls to other services wait. Check its options --etcd-… and --gateways, its certificate and its network.")
			continue
		}
		add(FindingOtherEtcd, o.replica, o,
			"The gateways send calls to it if it leads. Correct its --etcd-endpoints and restart it.")
	}
	return list
}

// actions has what the gateway does and what an operator should do, by the kind of the need.
var actions = map[kind]string{
	certificate: "Other processes and clients refuse new connections. Replace the files of --tls-cert and --tls-key.",
	etcd:        "The gateway reads no events and no output of ended workers. Check etcd and the gateway's options --etcd-….",
	sameCluster: "The gateway reads no events and no output of ended workers. " +
		"Compare --cluster and --etcd-endpoints of the gateway with those of the services.",
	model.ServiceRegistry:      "Calls to the registry wait. Start its replicas, and check the gateway's --registry.",
	model.ServiceExecutorState: "Calls to executor-state wait. Start its replicas, and check the gateway's --executor-state.",
	model.ServiceAssigner:      "Calls to the assigner wait. Start its replicas, and check the gateway's --assigner.",
}
