package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// Reservations returns the table of reservations.
func Reservations(list []*berthv1.Reservation, now time.Time, wide bool) *Table {
	t := table("RESERVATION", "STATE", "RUNNING", "POS", "AGE", "REASON").more(wide, "UID", "EPOCH", "NEEDS",
		"EXPIRES", "MESSAGE")
	for _, r := range list {
		ends := ""
		if r.GetExpiresAt() != nil {
			ends = clock(r.GetExpiresAt().AsTime(), now)
		}
		t.add(reservationKey(r), resultWord(r), running(r), number(r.GetPosition()), since(r.GetCreatedAt(), now),
			reasonOf(r),
			r.GetUid(), number(r.GetEpoch()), constraints(r.GetConstraints()), ends, LastRound(r.GetMessage()))
	}
	return t
}

// reasonOf returns the reason of a reservation, and how many of its workers failed. While
// others run, it returns how many are queued again.
func reasonOf(r *berthv1.Reservation) string {
	if r.GetReason() == "" {
		return workerCounts(r, "EVICTED", "FAILED", "LOST")
	}
	states := []string{"FAILED", "LOST"}
	if r.GetState() == berthv1.Reservation_ACTIVE {
		states = []string{"QUEUED", "FAILED", "LOST"}
	}
	return strings.TrimSuffix(r.GetReason()+", "+workerCounts(r, states...), ", ")
}

// Jobs returns the table of jobs.
func Jobs(list []*berthv1.Job, now time.Time, wide bool) *Table {
	t := table("JOB", "QUEUED", "PENDING", "RESERVED", "RUNNING", "STOPPING", "ACTIVE").
		more(wide, "DELAYED", "RESERVATIONS")
	for _, j := range list {
		t.add(j.GetName(), number(j.GetPendingReservations()), number(j.GetPendingWorkers()), number(j.GetReservedWorkers()),
			number(j.GetRunningWorkers()), number(j.GetStoppingWorkers()), since(j.GetLastActivity(), now),
			number(j.GetDelayedWorkers()), number(j.GetReservations()))
	}
	return t
}

// running formats how many of a reservation's workers run.
func running(r *berthv1.Reservation) string {
	return fmt.Sprintf("%d/%d", r.GetWorkerCounts()["RUNNING"], workers(r))
}

func workers(r *berthv1.Reservation) int { return max(int(r.GetCount()), len(r.GetWorkers())) }

// Pending returns the table of queues.
func Pending(groups []*berthv1.PendingGroup, now time.Time, wide bool) *Table {
	t := table("GROUP", "QUEUED", "WORKERS", "HEAD", "WAITS", "REASON").more(wide, "NEEDS", "AVOIDS", "MESSAGE")
	for _, g := range groups {
		head := g.GetHead()
		t.add(g.GetId(), number(g.GetReservations()), number(g.GetWorkers()),
			Key(head.GetJob(), head.GetStage(), head.GetName()), Age(g.GetHeadAge().AsDuration()), g.GetReason(),
			constraints(g.GetConstraints()), avoidedUntil(g.GetAvoided(), now), LastRound(g.GetMessage()))
	}
	return t
}

// History returns the table of what was pending at each time.
func History(points []*berthv1.PendingPoint, now time.Time, _ bool) *Table {
	t := table("TIME", "GROUPS", "QUEUED", "WORKERS")
	for _, p := range points {
		t.add(clock(p.GetTime().AsTime(), now), fmt.Sprint(p.GetGroups()), fmt.Sprint(p.GetReservations()),
			fmt.Sprint(p.GetWorkers()))
	}
	return t
}

// Assignments returns the table of workers and their executors.
func Assignments(list []*berthv1.Assignment, now time.Time, wide bool) *Table {
	t := table("WORKER", "EXECUTOR", "STATE", "SINCE", "ATTEMPTS", "ERROR").more(wide, "EXIT", "RESERVATION", "UID",
		"EPOCH")
	for _, a := range list {
		t.add(Worker(a), a.GetExecutor(), state(a.GetState()), since(a.GetSince(), now), number(a.GetAttempts()),
			a.GetLastError(),
			exit(a.ExitCode), a.GetReservation(), a.GetUid(), number(a.GetEpoch()))
	}
	return t
}

// Members returns a function that returns the table of the members of a gang. Below them, it has each
// range of worker indexes that are not placed and not all members.
func Members(job, stage string) func(list *berthv1.ListMembersAnswer, now time.Time, wide bool) *Table {
	return func(list *berthv1.ListMembersAnswer, _ time.Time, _ bool) *Table {
		t := table("WORKER", "EXECUTOR", "HOST", "STATE")
		type unplaced struct {
			*berthv1.IndexRange
			state   string
			members int32
		}
		var ranges []*unplaced
		for i, indexes := range [][]*berthv1.IndexRange{list.GetWaiting(), list.GetEnded(), list.GetGaveUp()} {
			for _, r := range indexes {
				ranges = append(ranges, &unplaced{IndexRange: r, state: []string{"waiting", "ended", "gave up"}[i]})
			}
		}
		slices.SortFunc(ranges, func(a, b *unplaced) int { return cmp.Compare(a.GetFirst(), b.GetFirst()) })
		next := 0
		for _, m := range list.GetMembers() {
			for next < len(ranges) && ranges[next].GetLast() < m.GetIndex() {
				next++
			}
			state := "placed"
			if next < len(ranges) && ranges[next].GetFirst() <= m.GetIndex() {
				state = ranges[next].state
				ranges[next].members++
			}
			t.add(fmt.Sprintf("%s/%s/%d.%d", job, stage, m.GetIndex(), m.GetNumber()), m.GetExecutor(), m.GetHost(), state)
		}
		for _, r := range ranges {
			name := fmt.Sprintf("%s/%s/%d", job, stage, r.GetFirst())
			if r.GetLast() > r.GetFirst() {
				name += fmt.Sprintf("-%d", r.GetLast())
			}
			if r.members <= r.GetLast()-r.GetFirst() {
				t.add(name, "", "", r.state)
			}
		}
		return t
	}
}

// Worker returns the name of the worker of an assignment. Findings use the same name.
func Worker(a *berthv1.Assignment) string {
	return fmt.Sprintf("%s/%s/%d.%d", a.GetJob(), a.GetStage(), a.GetIndex(), a.GetNumber())
}

func exit(code *int32) string {
	if code == nil {
		return ""
	}
	return fmt.Sprint(*code)
}

// Findings returns the table of findings. The message and the action of a finding are
// below its row. A wide table has them in columns too.
func Findings(list []*berthv1.Finding, now time.Time, wide bool) *Table {
	t := table("FINDING", "OBJECT", "SINCE", "SERVICE").more(wide, "MESSAGE", "ACTION")
	for _, f := range list {
		message := LastRound(f.GetMessage())
		t.add(f.GetKind(), f.GetObject(), since(f.GetSince(), now), f.GetService(), message, f.GetAction())
		if !wide {
			t.note(message, f.GetAction())
		}
	}
	return t
}

// A service whose replicas do not lead has noLeader in place of its leader. If no replica answers,
// the service may have a leader, and it has noAnswer.
const noLeader, noAnswer = "NO LEADER", "NO ANSWER"

// missing returns noLeader or noAnswer for a service without a known leader.
func missing(s *berthv1.ServiceLeadership) string {
	for _, r := range s.GetReplicas() {
		if r.GetRole() != berthv1.Replica_UNREACHABLE {
			return noLeader
		}
	}
	return noAnswer
}

// Leaders returns the table of the replicas of each service. The leader is the first row
// of its service. A service without a known leader has an extra row that says why. The cause is
// below each replica that does not answer.
func Leaders(services []*berthv1.ServiceLeadership, now time.Time, wide bool) *Table {
	t := table("SERVICE", "REPLICA", "ROLE", "TERM", "SINCE", "RENEWED", "BEHIND").more(wide, "ADDRESS", "REVISION",
		"VERSION")
	for _, s := range services {
		if s.GetLeader() == "" {
			t.add(s.GetService(), "", missing(s))
		}
		for _, r := range replicas(s) {
			row := []string{s.GetService(), cmp.Or(r.GetId(), r.GetAddress()), state(r.GetRole()), "", "", "",
				fmt.Sprint(r.GetBehind())}
			switch r.GetRole() {
			case berthv1.Replica_LEADER:
				row[3] = number(cmp.Or(r.GetTerm(), s.GetTerm()))
				row[4] = since(cmp.Or(r.GetSince(), s.GetSince()), now)
				row[5] = since(cmp.Or(r.GetRenewed(), s.GetRenewed()), now)
			case berthv1.Replica_UNREACHABLE:
				row[6] = ""
			}
			if r.GetNoView() {
				row[6] = "no view yet"
			}
			t.add(append(row, r.GetAddress(), number(r.GetRevision()), r.GetVersion())...)
			if r.GetError() != "" {
				t.note(r.GetError())
			}
		}
	}
	return t
}

// replicas returns the replicas of a service, with the leader first. If the leader is
// missing from the list of replicas, replicas adds the leader.
func replicas(s *berthv1.ServiceLeadership) []*berthv1.Replica {
	list := slices.Clone(s.GetReplicas())
	known := slices.ContainsFunc(list, func(r *berthv1.Replica) bool { return r.GetId() == s.GetLeader() })
	if s.GetLeader() != "" && !known {
		list = append(list, &berthv1.Replica{
			Id: s.GetLeader(), Address: s.GetAddress(), Role: berthv1.Replica_LEADER, Term: s.GetTerm(), Since: s.GetSince(),
		})
	}
	slices.SortStableFunc(list, func(a, b *berthv1.Replica) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.GetId(), b.GetId()))
	})
	return list
}

func rank(r *berthv1.Replica) int {
	if r.GetRole() == berthv1.Replica_LEADER {
		return 0
	}
	return 1
}
