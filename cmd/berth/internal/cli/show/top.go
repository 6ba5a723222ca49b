package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// topRows is the maximum number of rows of each list in Top.
const topRows = 8

// Overview is the state of a cluster that Top shows.
type Overview struct {
	Services []*berthv1.ServiceLeadership
	// Usage and Pending are nil if the registry cannot tell them. Missing then has the
	// reason.
	Usage   *berthv1.GetUsageAnswer
	Pending *berthv1.ListPendingAnswer
	Missing string
	// Reservations are the reservations that have not ended. Cut is set if not all
	// reservations were read.
	Reservations []*berthv1.Reservation
	Cut          bool
}

// Top returns an overview of a cluster: its leaders, the capacity of each SKU, the queues
// whose heads have waited longest, and the jobs with the most workers.
func Top(o Overview, now time.Time, style Style) string {
	var b strings.Builder
	section := func(title string, t *Table, rows int, empty string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if rows > topRows {
			title += fmt.Sprintf(" (%d of %d)", topRows, rows)
		}
		b.WriteString(cut(title, style.Width) + "\n" + cmp.Or(t.Styled(style), cut(oneLine(empty), style.Width)+"\n"))
	}
	leaders := table("SERVICE", "LEADER", "TERM", "SINCE", "STANDBYS")
	for _, s := range o.Services {
		standbys := 0
		for _, r := range s.GetReplicas() {
			if r.GetRole() == berthv1.Replica_STANDBY {
				standbys++
			}
		}
		leaders.add(s.GetService(), cmp.Or(s.GetLeader(), "NO LEADER"), number(s.GetTerm()), since(s.GetSince(), now),
			fmt.Sprint(standbys))
	}
	section("Leaders", leaders, 0, "no services")

	skus := slices.SortedFunc(slices.Values(o.Usage.GetSkus()), func(a, b *berthv1.SkuUsage) int {
		return cmp.Or(cmp.Compare(b.GetTotal(), a.GetTotal()), strings.Compare(a.GetSku(), b.GetSku()))
	})
	capacity := table("SKU", "TOTAL", "IDLE", "LEASED", "RUNNING", "UNAVAILABLE", "DISABLED", "PENDING")
	for _, s := range skus[:min(len(skus), topRows)] {
		capacity.add(s.GetSku(), fmt.Sprint(s.GetTotal()), fmt.Sprint(s.GetIdle()), fmt.Sprint(s.GetLeased()),
			fmt.Sprint(s.GetRunning()), fmt.Sprint(s.GetUnavailable()), fmt.Sprint(s.GetDisabled()),
			fmt.Sprint(s.GetPendingExecutors()))
	}
	section("Executors by SKU", capacity, len(skus), cmp.Or(o.Missing, "no SKUs"))

	groups := slices.SortedFunc(slices.Values(o.Pending.GetGroups()), func(a, b *berthv1.PendingGroup) int {
		return cmp.Or(cmp.Compare(b.GetHeadAge().AsDuration(), a.GetHeadAge().AsDuration()),
			strings.Compare(a.GetId(), b.GetId()))
	})
	queues := table("HEAD", "WAITS", "QUEUED", "WORKERS", "REASON", "GROUP")
	for _, g := range groups[:min(len(groups), topRows)] {
		head := g.GetHead()
		queues.add(Key(head.GetJob(), head.GetStage(), head.GetName()), Age(g.GetHeadAge().AsDuration()),
			number(g.GetReservations()), number(g.GetWorkers()), g.GetReason(), g.GetId())
	}
	section("Queues by age of the head", queues, len(groups), cmp.Or(o.Missing, "nothing is pending"))

	list := jobsOf(o.Reservations)
	jobs := table("JOB", "WORKERS", "RUNNING", "QUEUED", "RESERVATIONS")
	for _, j := range list[:min(len(list), topRows)] {
		jobs.add(j.name, fmt.Sprint(j.workers), fmt.Sprint(j.running), fmt.Sprint(j.queued), fmt.Sprint(j.reservations))
	}
	title := "Largest jobs"
	if o.Cut {
		title += ", of a part of the reservations"
	}
	section(title, jobs, len(list), "no jobs")
	return b.String()
}

// job sums the reservations of a job.
type job struct {
	name                                   string
	workers, running, queued, reservations int
}

// jobsOf returns the jobs of reservations, the largest first.
func jobsOf(list []*berthv1.Reservation) []*job {
	byName := map[string]*job{}
	var jobs []*job
	for _, r := range list {
		j := byName[r.GetJob()]
		if j == nil {
			j = &job{name: r.GetJob()}
			byName[j.name] = j
			jobs = append(jobs, j)
		}
		j.reservations++
		j.workers += workers(r)
		j.running += int(r.GetWorkerCounts()["RUNNING"])
		if r.GetState() == berthv1.Reservation_QUEUED {
			j.queued += workers(r)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(cmp.Compare(b.workers, a.workers), strings.Compare(a.name, b.name))
	})
	return jobs
}
