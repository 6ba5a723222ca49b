package show

import (
	"strconv"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// Tenants returns the table of tenants, with their use and limits.
func Tenants(list []*berthv1.Tenant, _ time.Time, wide bool) *Table {
	t := table("TENANT", "PREFIX", "QUEUED", "WORKERS", "STORED", "STREAMS", "BATCH", "RATE", "PRIORITY").
		more(wide, "SKUS", "POOLS")
	for _, tenant := range list {
		use, limits := tenant.GetUse(), tenant.GetLimits()
		rate, priority := "", ""
		if limits.GetRequestsPerSecond() > 0 {
			rate = strconv.FormatFloat(limits.GetRequestsPerSecond(), 'f', -1, 64) + "/s"
		}
		if class := limits.GetHighestPriority(); class != 0 {
			priority = class.String()
		}
		t.add(tenant.GetName(), tenant.GetPrefix(),
			ofLimit(use.GetQueuedReservations(), limits.GetQueuedReservations(), plain),
			ofLimit(use.GetWorkers(), limits.GetWorkers(), plain),
			ofLimit(use.GetStoredBytes(), limits.GetStoredBytes(), size),
			ofLimit(use.GetEventStreams(), limits.GetEventStreams(), plain),
			number(limits.GetBatch()), rate, priority,
			strings.Join(limits.GetSkus(), ","), strings.Join(limits.GetPools(), ","))
	}
	return t
}

// ofLimit formats a use and its limit: `12/500`, or `12/-` without a limit.
func ofLimit[N int32 | int64](use, limit N, text func(N) string) string {
	if limit == 0 {
		return text(use) + "/" + emptyCell
	}
	return text(use) + "/" + text(limit)
}

func plain(n int32) string { return strconv.Itoa(int(n)) }
