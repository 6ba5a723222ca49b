package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
)

const (
	// enough is the recommended number of replicas: one replica may fail while another is
	// being replaced.
	enough = 3
	// farBehind is the number of revisions above which a replica counts as behind. The
	// replicas answer at different moments, and a busy cluster writes some hundred
	// revisions in between.
	farBehind = 1000
	// skewed is the maximum difference between two clocks. Correctness does not depend on
	// clocks, but ages, expiries and the order of log lines do.
	skewed = 2 * time.Second
)

func gateways(list []Gateway) []Check {
	var checks []Check
	for _, g := range list {
		check := ok("gateway", "%s answers", g.Address)
		switch {
		case g.Called != "":
			check = fail("gateway", "set --gateway to an address of --listen", "%s is an address of %s: %s", g.Address,
				g.Called, g.Error)
		case g.Error != "":
			check = fail("gateway", "start it and check its log, or set another one with --gateway", "%s does not answer: %s",
				g.Address, g.Error)
		case len(g.NotReady) > 0:
			check = fail("gateway", "correct the option of the gateway that the reason is about, or start what is missing",
				"%s is not ready: %s", g.Address, strings.Join(g.NotReady, "; "))
		}
		checks = append(checks, check)
	}
	return checks
}

func leadership(s *berthv1.ServiceLeadership) Check {
	answers := func(r *berthv1.Replica) bool { return r.GetRole() != berthv1.Replica_UNREACHABLE }
	switch {
	case s.GetLeader() == "" && !slices.ContainsFunc(s.GetReplicas(), answers):
		return fail(s.GetService()+" leader", "start them, and check the addresses in the gateway's --"+s.GetService(),
			"not known: no replica answers the gateway, and calls to %s wait", s.GetService())
	case s.GetLeader() == "":
		return fail(s.GetService()+" leader", "check that its replicas run, and check their /readyz and logs: etcd without a quorum or with an alarm elects no leader",
			"no leader: calls to %s wait", s.GetService())
	}
	seen := fmt.Sprintf("%s leads in term %d", s.GetLeader(), s.GetTerm())
	for _, r := range s.GetReplicas() {
		if r.GetId() == s.GetLeader() && r.GetNow() != nil {
			seen += fmt.Sprintf(" for %v, renewed %v ago", elapsed(s.GetSince().AsTime(), r.GetNow().AsTime()),
				elapsed(s.GetRenewed().AsTime(), r.GetNow().AsTime()))
		}
	}
	return ok(s.GetService()+" leader", "%s", seen)
}

// elapsed returns the rounded time between two readings of one clock.
func elapsed(from, to time.Time) time.Duration {
	d := to.Sub(from)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func replicas(s *berthv1.ServiceLeadership) Check {
	name := s.GetService() + " replicas"
	var unreachable, lacking, behind, without []string
	lacks := warn // what a standby lacks is no failure yet
	for _, r := range s.GetReplicas() {
		switch {
		case r.GetRole() == berthv1.Replica_UNREACHABLE:
			address := r.GetAddress()
			if r.GetError() != "" {
				address = rpc.Unreached{Address: address, Cause: r.GetError()}.String()
			}
			unreachable = append(unreachable, address)
		case len(r.GetLacks()) > 0:
			lacking = append(lacking, r.GetId()+": "+strings.Join(r.GetLacks(), "; "))
			if r.GetRole() == berthv1.Replica_LEADER {
				lacks = fail
			}
		case r.GetNoView():
			without = append(without, r.GetId())
		case r.GetBehind() > farBehind:
			behind = append(behind, fmt.Sprintf("%s by %d revisions", r.GetId(), r.GetBehind()))
		}
	}
	all := len(s.GetReplicas())
	switch {
	case len(lacking) > 0:
		return lacks(name, "check their options --etcd-… and --gateways, and their network", "%s", strings.Join(lacking, ", "))
	case len(unreachable) > 0:
		return warn(name, "restart them; remove addresses that are no longer in use from the options of the gateways",
			"%d of %d do not answer: %s", len(unreachable), all, strings.Join(unreachable, ", "))
	case len(without) > 0:
		return warn(name, "wait until they have read the records; if that takes more than a minute, check their connections to etcd",
			"no view yet: %s", strings.Join(without, ", "))
	case len(behind) > 0:
		return warn(name, "check its processor time and its network to etcd: it can lead only after it has caught up",
			"behind: %s", strings.Join(behind, ", "))
	case all < enough:
		return warn(name, "run three replicas, so that one may fail while another is replaced", "only %d", all)
	}
	return ok(name, "%d, all up to date", all)
}

func versions(services []*berthv1.ServiceLeadership) Check {
	of := map[string][]string{}
	for _, s := range services {
		for _, r := range s.GetReplicas() {
			if r.GetVersion() != "" {
				of[r.GetVersion()] = append(of[r.GetVersion()], r.GetId())
			}
		}
	}
	list := slices.Sorted(maps.Keys(of))
	switch len(list) {
	case 0:
		return warn("versions", "see the checks above", "no replica reports its version")
	case 1:
		return ok("versions", "all replicas are %s", list[0])
	}
	var seen []string
	for _, version := range list {
		seen = append(seen, fmt.Sprintf("%s: %s", version, strings.Join(distinct(of[version]), " ")))
	}
	return warn("versions", "finish the upgrade", "%s", strings.Join(seen, "; "))
}

func readiness(f Facts) Check {
	switch {
	case f.ReadyError != "":
		return fail("readiness", "see the registry's checks above", "not known: %s", f.ReadyError)
	case !f.Ready:
		return warn("readiness", "run berth mark-ready when all job services have repeated their requests",
			"the registry is not ready, and leases nothing")
	}
	return ok("readiness", "the registry is ready")
}

// findings returns one check for each kind of finding, or an OK check if there are none.
func findings(f Facts) []Check {
	if f.FindingsError != "" {
		return []Check{fail("findings", "see the checks above", "findings cannot be listed: %s", f.FindingsError)}
	}
	if len(f.Findings) == 0 {
		return []Check{ok("findings", "none")}
	}
	of := map[string][]string{}
	for _, found := range f.Findings {
		of[found.GetKind()] = append(of[found.GetKind()], found.GetObject())
	}
	var checks []Check
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		seen := fmt.Sprintf("%d %s: %s", len(of[kind]), kind, strings.Join(some(of[kind]), ", "))
		check := warn("findings", "run berth get findings -o wide", "%s", seen)
		if slices.Contains([]string{"SERVICE_UNAVAILABLE", "GATEWAY_NOT_READY", "OTHER_ETCD"}, kind) {
			check.Verdict = Failure
		}
		checks = append(checks, check)
	}
	return checks
}

// few is the maximum number of names in a list.
const few = 3

// some returns the first elements of a list.
func some(list []string) []string {
	if len(list) <= few {
		return list
	}
	return append(slices.Clone(list[:few]), "…")
}

// etcdCluster compares the etcd clusters that the processes use, and the one of --etcd-endpoints.
func etcdCluster(f Facts) Check {
	const name = "etcd cluster"
	users := map[string][]string{}
	for _, g := range f.Gateways {
		users[g.EtcdCluster] = append(users[g.EtcdCluster], g.Address)
	}
	for _, s := range f.Services {
		for _, r := range s.GetReplicas() {
			users[r.GetEtcdCluster()] = append(users[r.GetEtcdCluster()], r.GetId())
		}
	}
	delete(users, "")
	if len(users) == 0 {
		return warn(name, "upgrade gateways and services", "no process reports its etcd cluster")
	}
	if f.Etcd != nil && f.Etcd.ClusterID != "" {
		users[f.Etcd.ClusterID] = append(users[f.Etcd.ClusterID], "the --etcd-endpoints of this command")
	}
	var seen []string
	for _, id := range slices.Sorted(maps.Keys(users)) {
		if len(users) == 1 {
			return ok(name, "all processes use %s", id)
		}
		text := strings.Join(users[id], ", ")
		if n := len(users[id]); n > few {
			text = plural(n, "process")
		}
		seen = append(seen, id+": "+text)
	}
	return fail(name, "set the same --etcd-endpoints for all processes", "%s", strings.Join(seen, "; "))
}

// clocks compares the clock of each gateway with the clock of this host. It compares the
// clock of each replica with the clock of the gateway that called the replica. It allows
// for the duration of a call.
func clocks(f Facts) []Check {
	var off []string
	compared := 0
	compare := func(name string, now time.Time, other string, earliest, latest time.Time) {
		compared++
		switch {
		case now.Before(earliest.Add(-skewed)):
			off = append(off, fmt.Sprintf("%s is %v behind %s", name, earliest.Sub(now).Round(time.Second), other))
		case now.After(latest.Add(skewed)):
			off = append(off, fmt.Sprintf("%s is %v ahead of %s", name, now.Sub(latest).Round(time.Second), other))
		}
	}
	var by time.Time // the clock of the gateway that listed the replicas
	for _, g := range f.Gateways {
		if !g.Now.IsZero() {
			by = cmp.Or(by, g.Now)
			compare(g.Address, g.Now, "this host", g.Asked, g.Answered)
		}
	}
	for _, s := range f.Services {
		for _, r := range s.GetReplicas() {
			if r.GetNow() != nil && !by.IsZero() {
				compare(r.GetId(), r.GetNow().AsTime(), "the gateway", by, by)
			}
		}
	}
	switch {
	case len(off) > 0:
		return []Check{warn("clocks", "synchronize the clocks by NTP: leases are safe, but ages, expiries and logs depend on clocks", "%s", strings.Join(off, ", "))}
	case compared == 0:
		return []Check{warn("clocks", "upgrade gateways and services", "no process reports its time")}
	}
	return []Check{ok("clocks", "%d processes and this host differ by less than %v", compared, skewed)}
}
