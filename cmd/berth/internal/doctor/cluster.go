package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

const (
	// enough replicas of a service for one to be away while another is replaced.
	enough = 3
	// farBehind is how many revisions a view may lag. Those who are asked answer at
	// different moments, in which a busy cluster writes some hundreds.
	farBehind = 1000
	// skewed is how far apart clocks may be. Nothing that has to be right goes by
	// them, but ages, expiries and the order of logs do.
	skewed = 2 * time.Second
)

func gateways(list []Gateway) []Check {
	var checks []Check
	for _, g := range list {
		if g.Called != "" {
			checks = append(checks, fail("gateway", "name an address of --listen with --gateway", "%s is of %s: %s", g.Address, g.Called, g.Error))
			continue
		}
		if g.Error != "" {
			checks = append(checks, fail("gateway", "start it, or name another with --gateway; its log says what it lacks", "%s does not answer: %s", g.Address, g.Error))
			continue
		}
		checks = append(checks, ok("gateway", "%s answers", g.Address))
	}
	return checks
}

func leadership(s *berthv1.ServiceLeadership) Check {
	if s.GetLeader() == "" {
		return fail(s.GetService()+" leader", "see whether its replicas run, and what their /readyz and logs say: without quorum in etcd, or with an alarm there, nobody is elected",
			"nobody leads: calls to %s wait", s.GetService())
	}
	seen := fmt.Sprintf("%s leads in term %d", s.GetLeader(), s.GetTerm())
	for _, r := range s.GetReplicas() {
		if r.GetId() == s.GetLeader() && r.GetNow() != nil {
			seen += fmt.Sprintf(" for %v, renewed %v ago", elapsed(s.GetSince().AsTime(), r.GetNow().AsTime()), elapsed(s.GetRenewed().AsTime(), r.GetNow().AsTime()))
		}
	}
	return ok(s.GetService()+" leader", "%s", seen)
}

// elapsed is the time between two readings of one clock, as coarse as people read
// it.
func elapsed(from, to time.Time) time.Duration {
	d := to.Sub(from)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func replicas(s *berthv1.ServiceLeadership) Check {
	name := s.GetService() + " replicas"
	var gone, behind []string
	for _, r := range s.GetReplicas() {
		switch {
		case r.GetRole() == berthv1.Replica_UNREACHABLE:
			gone = append(gone, r.GetAddress())
		case r.GetBehind() > farBehind:
			behind = append(behind, fmt.Sprintf("%s by %d revisions", r.GetId(), r.GetBehind()))
		}
	}
	all := len(s.GetReplicas())
	switch {
	case len(gone) > 0:
		return warn(name, "start it again; an address that is no longer in use has to go from the gateways' options", "%d of %d do not answer: %s", len(gone), all, strings.Join(gone, ", "))
	case len(behind) > 0:
		return warn(name, "it takes over only when it has caught up: see that it has processor time and a way to etcd", "behind: %s", strings.Join(behind, ", "))
	case all < enough:
		return warn(name, "run three, so that one may fail while another is replaced", "only %d", all)
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
		return warn("versions", "see the checks above", "no replica tells its version")
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
		return fail("readiness", "see the registry's checks above", "the registry does not say: %s", f.ReadyError)
	case !f.Ready:
		return warn("readiness", "when all job services have asked again: berth mark-ready", "the registry waits to be told that it is ready, and leases nothing")
	}
	return ok("readiness", "the registry is ready")
}

// findings is one check a kind, and one that all is well where there is none.
func findings(f Facts) []Check {
	if f.FindingsError != "" {
		return []Check{fail("findings", "see the checks above", "they cannot be listed: %s", f.FindingsError)}
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
		check := warn("findings", "berth get findings -o wide", "%s", seen)
		if kind == "SERVICE_UNAVAILABLE" {
			check.Verdict = Failure
		}
		checks = append(checks, check)
	}
	return checks
}

// some is the first few of a list.
func some(list []string) []string {
	const few = 3
	if len(list) <= few {
		return list
	}
	return append(slices.Clone(list[:few]), "…")
}

// clocks compares each gateway's with this host's, and the replicas' with that of
// the gateway that asked them. An answer takes time, within which nothing is said.
func clocks(f Facts) []Check {
	var off []string
	told := 0
	var by time.Time // the clock of the gateway that listed the replicas
	for _, g := range f.Gateways {
		if g.Now.IsZero() {
			continue
		}
		if by.IsZero() {
			by = g.Now
		}
		told++
		switch {
		case g.Now.Before(g.Asked.Add(-skewed)):
			off = append(off, fmt.Sprintf("%s is %v behind this host", g.Address, g.Asked.Sub(g.Now).Round(time.Second)))
		case g.Now.After(g.Told.Add(skewed)):
			off = append(off, fmt.Sprintf("%s is %v ahead of this host", g.Address, g.Now.Sub(g.Told).Round(time.Second)))
		}
	}
	for _, s := range f.Services {
		for _, r := range s.GetReplicas() {
			if r.GetNow() == nil || by.IsZero() {
				continue
			}
			told++
			switch d := r.GetNow().AsTime().Sub(by); {
			case d > skewed:
				off = append(off, fmt.Sprintf("%s is %v ahead of the gateway", r.GetId(), d.Round(time.Second)))
			case d < -skewed:
				off = append(off, fmt.Sprintf("%s is %v behind the gateway", r.GetId(), -d.Round(time.Second)))
			}
		}
	}
	switch {
	case len(off) > 0:
		return []Check{warn("clocks", "set the clocks by NTP: leases are safe, but ages, expiries and logs go by them", "%s", strings.Join(off, ", "))}
	case told == 0:
		return []Check{warn("clocks", "upgrade gateways and services", "nobody tells the time")}
	}
	return []Check{ok("clocks", "those of %d processes and this host within %v", told, skewed)}
}
