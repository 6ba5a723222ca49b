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
	// Jobs are the jobs that have not ended. Cut is set if not all jobs were read.
	Jobs []*berthv1.Job
	Cut  bool
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
		leaders.add(s.GetService(), cmp.Or(s.GetLeader(), missing(s)), number(s.GetTerm()), since(s.GetSince(), now),
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

	list := slices.SortedFunc(slices.Values(o.Jobs), func(a, b *berthv1.Job) int {
		return cmp.Or(cmp.Compare(workersOf(b), workersOf(a)), strings.Compare(a.GetName(), b.GetName()))
	})
	jobs := table("JOB", "WORKERS", "RUNNING", "QUEUED", "RESERVATIONS")
	for _, j := range list[:min(len(list), topRows)] {
		jobs.add(j.GetName(), fmt.Sprint(workersOf(j)), fmt.Sprint(j.GetRunningWorkers()), fmt.Sprint(j.GetPendingWorkers()),
			fmt.Sprint(j.GetReservations()))
	}
	title := "Largest jobs"
	if o.Cut {
		title += ", of a part of the jobs"
	}
	section(title, jobs, len(list), "no jobs")
	return b.String()
}

// workersOf returns the number of workers of a job that have not ended.
func workersOf(j *berthv1.Job) int64 {
	return int64(j.GetPendingWorkers()) + int64(j.GetDelayedWorkers()) + int64(j.GetReservedWorkers()) +
		int64(j.GetRunningWorkers()) + int64(j.GetStoppingWorkers())
}
