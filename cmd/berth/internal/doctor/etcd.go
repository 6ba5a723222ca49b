package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/store"
)

const (
	// nearlyFull and full are shares of the quota, in percent: etcd raises its alarm
	// at the quota, and a defragmentation needs room and time before that.
	nearlyFull, full = 80, 95
	// slow is a read that takes longer than etcd's own heartbeats are apart. At
	// tooSlow nobody is elected any more at the default TTL: a candidate waits a third
	// of it for its etcd lease, which takes etcd a write, and so longer than a read.
	// Who leads goes on until a renewal takes half of it: one is sent each sixth, and
	// the last that was answered is trusted for two thirds.
	slow, tooSlow = 100 * time.Millisecond, leader.DefaultTTL / 3
	// lagging is by how many log entries a member may be behind.
	lagging = 5000
	// uncompacted is how many revisions without any compaction say that nobody
	// compacts.
	uncompacted = 1_000_000
	oldest      = "3.5"
)

// etcd judges the cluster of etcd.
func etcd(h *store.Health) []Check {
	if h == nil {
		return []Check{{Name: "etcd", Verdict: Skipped, Seen: "not looked at", Do: "name it with --etcd-endpoints"}}
	}
	if !slices.ContainsFunc(h.Members, func(m store.Member) bool { return m.Error == "" }) {
		check := members(h.Members)
		check.Verdict = Failure
		return []Check{check}
	}
	return []Check{members(h.Members), quorum(h), alarms(h), space(h.Members), latency(h), lag(h.Members), etcdVersions(h.Members), compaction(h)}
}

func members(list []store.Member) Check {
	var gone, learners []string
	for _, m := range list {
		switch {
		case m.Error != "":
			gone = append(gone, called(m)+": "+m.Error)
		case m.Learner:
			learners = append(learners, called(m))
		}
	}
	switch {
	case len(gone) > 0:
		return warn("etcd members", "start it again with its data; a member whose data is lost has to be removed and added anew",
			"%d of %d do not answer: %s", len(gone), len(list), strings.Join(gone, "; "))
	case len(learners) > 0:
		return warn("etcd members", "promote it once it has caught up: etcdctl member promote", "without a vote yet: %s", strings.Join(learners, ", "))
	}
	return ok("etcd members", "%d, all answer", len(list))
}

// quorum is how many more members may fail.
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
			leads = called(m)
		}
	}
	spare := up - (voters/2 + 1)
	switch {
	case h.ReadError != "":
		return fail("etcd quorum", "start the members that are missing; while there is no quorum, calls wait and workers run on", "%d of %d members answer, and a read fails: %s", up, voters, h.ReadError)
	case leads == "":
		return warn("etcd quorum", "look again: an election takes a second", "no member that answers leads")
	case voters < enough:
		return warn("etcd quorum", "run three members, so that one may fail", "%s leads; of %d, none may fail", leads, voters)
	case spare <= 0:
		return warn("etcd quorum", "bring back the members that are missing before anything else", "%s leads; if one more fails, nothing can be written", leads)
	}
	return ok("etcd quorum", "%s leads; %d more may fail", leads, spare)
}

func alarms(h *store.Health) Check {
	switch {
	case slices.Contains(h.Alarms, "NOSPACE"):
		return fail("etcd alarms", "compact, defragment each member, then etcdctl alarm disarm (docs/how-to/runbooks/etcd.md#etcd-is-full)", "NOSPACE: nothing can be written, and nobody can be elected")
	case len(h.Alarms) > 0:
		return fail("etcd alarms", "replace the member whose data is damaged, then etcdctl alarm disarm", "%s", strings.Join(h.Alarms, ", "))
	case h.ReadError != "":
		return warn("etcd alarms", "see the quorum", "not known without a quorum")
	}
	return ok("etcd alarms", "none")
}

// space judges the member that is nearest to its quota.
func space(list []store.Member) Check {
	var worst store.Member
	share := int64(-1)
	for _, m := range list {
		if m.Quota > 0 && 100*m.Size/m.Quota > share {
			worst, share = m, 100*m.Size/m.Quota
		}
	}
	if share < 0 {
		return warn("etcd space", "etcd 3.6 and later tell; compare etcdctl endpoint status with --quota-backend-bytes", "no member tells its quota")
	}
	seen := fmt.Sprintf("%s uses %s of its quota of %s", called(worst), size(worst.Size), size(worst.Quota))
	if share < nearlyFull {
		return ok("etcd space", "%s", seen)
	}
	do := "see that history is compacted (--auto-compaction-retention), or raise --quota-backend-bytes"
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
	do := fmt.Sprintf("see that its disks, processors and network are its own: at a TTL of %v nobody is elected where a write takes longer than %v, and leaders give up where renewals take longer than %v",
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
			behind = append(behind, fmt.Sprintf("%s by %d entries", called(m), newest-m.Index))
		}
	}
	if len(behind) > 0 {
		return warn("etcd lag", "see its disk and its network; until it has caught up it is none that may be counted on", "behind: %s", strings.Join(behind, ", "))
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
		return warn("etcd versions", "upgrade to "+oldest+" or later, one member after the other", "%s", strings.Join(all, ", "))
	case len(all) > 1:
		return warn("etcd versions", "finish the upgrade", "%s", strings.Join(all, ", "))
	}
	return ok("etcd versions", "all members are %s", all[0])
}

// older says whether a version is below the oldest that Berth is for.
func older(version string) bool {
	number := func(v string) int {
		major, rest, _ := strings.Cut(v, ".")
		minor, _, _ := strings.Cut(rest, ".")
		a, _ := strconv.Atoi(major)
		b, _ := strconv.Atoi(minor)
		return 1000*a + b
	}
	return number(version) < number(oldest)
}

func compaction(h *store.Health) Check {
	switch {
	case h.Compacted > 0:
		return ok("etcd compaction", "%d of %d revisions are compacted", h.Compacted, h.Revision)
	case h.Revision < uncompacted:
		return ok("etcd compaction", "nothing is compacted yet, at revision %d", h.Revision)
	}
	return warn("etcd compaction", "set --auto-compaction-mode periodic and --auto-compaction-retention 10m: etcd never compacts by itself, until it is full",
		"nothing was ever compacted, at revision %d", h.Revision)
}

// size formats a number of bytes.
func size(n int64) string { return humanize.IBytes(uint64(n)) }

// called is what people know a member by.
func called(m store.Member) string { return cmp.Or(m.Name, m.Endpoint) }
