package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"
	"github.com/dustin/go-humanize"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/store"
)

const (
	// nearlyFull and full are percentages of the quota. etcd raises its alarm at the
	// quota, and before that a defragmentation needs space and time.
	nearlyFull, full = 80, 95
	// slow is the interval of etcd's own heartbeats. If a read takes tooSlow, no service
	// elects a leader at the default TTL. A candidate waits at most a third of the TTL
	// for its etcd lease, and etcd grants a lease with a write, which takes longer than a
	// read. An existing leader continues until a renewal takes half of the TTL: it renews
	// after each sixth of the TTL, and relies on the last successful renewal for two
	// thirds of the TTL.
	slow, tooSlow = 100 * time.Millisecond, leader.DefaultTTL / 3
	// lagging is the number of log entries above which a member counts as behind.
	lagging = 5000
	// uncompacted is the number of revisions by which etcd should have compacted its
	// history.
	uncompacted = 1_000_000
	oldest      = "3.5"
)

// etcd returns the checks of the etcd cluster. plain has the endpoints of Facts.PlainEtcd.
func etcd(h *store.Health, plain []string) []Check {
	if h == nil {
		return []Check{{Name: "etcd", Verdict: Skipped, Seen: "not checked", Do: "set --etcd-endpoints"}}
	}
	if h.Refused != "" {
		return []Check{fail("etcd login", "set --etcd-user and --etcd-password-file to a user that etcd accepts; if it is the user of the services, they read their file again when it changes",
			"%s", h.Refused)}
	}
	if !slices.ContainsFunc(h.Members, func(m store.Member) bool { return m.Error == "" }) {
		check := members(h.Members)
		check.Verdict = Failure
		return []Check{check}
	}
	return []Check{members(h.Members), quorum(h), alarms(h), space(h.Members), latency(h), lag(h.Members),
		etcdVersions(h.Members), compaction(h), etcdTLS(plain)}
}

func etcdTLS(plain []string) Check {
	if len(plain) > 0 {
		return warn("etcd TLS", "use https:// in --etcd-endpoints of every process, or make sure that only Berth can reach etcd",
			"called in plain text: %s", strings.Join(plain, ", "))
	}
	return ok("etcd TLS", "every endpoint has TLS or is on loopback")
}

func members(list []store.Member) Check {
	var unreachable, learners []string
	for _, m := range list {
		switch {
		case m.Error != "":
			unreachable = append(unreachable, nameOf(m)+": "+m.Error)
		case m.Learner:
			learners = append(learners, nameOf(m))
		}
	}
	switch {
	case len(unreachable) > 0:
		return warn("etcd members", "restart it with its data; if the data of a member is lost, remove the member and add a new one",
			"%d of %d do not answer: %s", len(unreachable), len(list), strings.Join(unreachable, "; "))
	case len(learners) > 0:
		return warn("etcd members", "run etcdctl member promote when it has caught up", "not yet voting: %s",
			strings.Join(learners, ", "))
	}
	return ok("etcd members", "%d, all answer", len(list))
}

// quorum checks how many more members may fail.
func quorum(h *store.Health) Check {
	voters, up, leads := 0, 0, ""
	for _, m := range h.Members {
		if m.Learner {
			continue
		}
		voters++
		if m.Error == "" {
			up++
		}
		if m.Leads {
			leads = nameOf(m)
		}
	}
	spare := up - (voters/2 + 1)
	switch {
	case h.ReadError != "":
		return fail("etcd quorum", "start the missing members; without a quorum, calls wait and workers keep running",
			"%d of %d members answer, and a read fails: %s", up, voters, h.ReadError)
	case leads == "":
		return warn("etcd quorum", "run the command again: an election takes a second", "no member that answers leads")
	case voters < enough:
		return warn("etcd quorum", "run three members, so that one may fail", "%s leads; %s, none may fail", leads,
			plural(voters, "member"))
	case spare <= 0:
		return warn("etcd quorum", "first restart the missing members",
			"%s leads; if one more fails, nothing can be written", leads)
	}
	return ok("etcd quorum", "%s leads; %d more may fail", leads, spare)
}

func alarms(h *store.Health) Check {
	switch {
	case slices.Contains(h.Alarms, "NOSPACE"):
		return fail("etcd alarms", "compact, defragment each member, then run etcdctl alarm disarm (docs/how-to/runbooks/etcd.md#etcd-is-full)", "NOSPACE: etcd rejects writes, and no leader can be elected")
	case len(h.Alarms) > 0:
		return fail("etcd alarms", "replace the member whose data is damaged, then run etcdctl alarm disarm", "%s",
			strings.Join(h.Alarms, ", "))
	case h.ReadError != "":
		return warn("etcd alarms", "see the quorum", "not known without a quorum")
	}
	return ok("etcd alarms", "none")
}

// space checks the member that is closest to its quota.
func space(list []store.Member) Check {
	var worst store.Member
	share := int64(-1)
	for _, m := range list {
		if m.Quota > 0 && 100*m.Size/m.Quota > share {
			worst, share = m, 100*m.Size/m.Quota
		}
	}
	if share < 0 {
		return warn("etcd space", "compare etcdctl endpoint status with --quota-backend-bytes, or upgrade to etcd 3.6",
			"no member reports its quota")
	}
	seen := fmt.Sprintf("%s uses %s of its quota of %s", nameOf(worst), size(worst.Size), size(worst.Quota))
	if share < nearlyFull {
		return ok("etcd space", "%s", seen)
	}
	do := "check that history is compacted (--auto-compaction-retention), or raise --quota-backend-bytes"
	if worst.InUse*2 < worst.Size {
		seen += fmt.Sprintf(", of which %s are in use", size(worst.InUse))
		do = "defragment the members one by one, the leader last"
	}
	check := warn("etcd space", do, "%s", seen)
	if share >= full {
		check.Verdict = Failure
	}
	return check
}

func latency(h *store.Health) Check {
	seen := fmt.Sprintf("a read through the quorum takes %v", h.Read.Round(10*time.Microsecond))
	do := fmt.Sprintf("give etcd its own disks, processors and network: at a TTL of %v, no leader is elected if a write takes longer than %v, and leaders resign if renewals take longer than %v",
		leader.DefaultTTL, tooSlow.Round(10*time.Millisecond), leader.DefaultTTL/2)
	switch {
	case h.ReadError != "":
		return warn("etcd latency", "see the quorum", "not known: %s", h.ReadError)
	case h.Read >= tooSlow:
		return fail("etcd latency", do, "%s", seen)
	case h.Read >= slow:
		return warn("etcd latency", do, "%s", seen)
	}
	return ok("etcd latency", "%s", seen)
}

func lag(list []store.Member) Check {
	var newest uint64
	for _, m := range list {
		newest = max(newest, m.Index)
	}
	var behind []string
	for _, m := range list {
		if m.Error == "" && newest-m.Index > lagging {
			behind = append(behind, fmt.Sprintf("%s by %d entries", nameOf(m), newest-m.Index))
		}
	}
	if len(behind) > 0 {
		return warn("etcd lag", "check its disk and network; do not rely on it before it has caught up", "behind: %s",
			strings.Join(behind, ", "))
	}
	return ok("etcd lag", "no member is behind")
}

func etcdVersions(list []store.Member) Check {
	var all []string
	for _, m := range list {
		all = append(all, m.Version)
	}
	all = distinct(all)
	switch {
	case slices.ContainsFunc(all, older):
		return warn("etcd versions", "upgrade to "+oldest+" or later, one member at a time", "%s", strings.Join(all, ", "))
	case len(all) > 1:
		return warn("etcd versions", "finish the upgrade", "%s", strings.Join(all, ", "))
	}
	return ok("etcd versions", "all members are %s", all[0])
}

// older reports whether a version is older than the oldest supported version. A version
// that cannot be parsed counts as older.
func older(version string) bool {
	v, err := semver.NewVersion(version)
	return err != nil || v.LessThan(*semver.New(oldest + ".0"))
}

func compaction(h *store.Health) Check {
	switch {
	case h.Compacted == store.NotKnown:
		return Check{Name: "etcd compaction", Verdict: Skipped, Seen: "not known: etcd does not permit the user to read the history",
			Do: "permit the user to read the keys from /berth/"}
	case h.Compacted > 0:
		return ok("etcd compaction", "%d of %d revisions are compacted", h.Compacted, h.Revision)
	case h.Revision < uncompacted:
		return ok("etcd compaction", "nothing is compacted yet, at revision %d", h.Revision)
	}
	return warn("etcd compaction", "set --auto-compaction-mode periodic and --auto-compaction-retention 10m: without them etcd never compacts, and fills up",
		"nothing has been compacted, at revision %d", h.Revision)
}

// size formats a number of bytes.
func size(n int64) string { return humanize.IBytes(uint64(n)) }

// nameOf returns the name of a member, or its endpoint if the name is not known.
func nameOf(m store.Member) string { return cmp.Or(m.Name, m.Endpoint) }
