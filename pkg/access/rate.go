package access

import (
	"math"
	"sync"
	"time"

	xrate "golang.org/x/time/rate"

	"berth.dev/pkg/model"
)

// rate limits the requests of one tenant.
type rate struct {
	perSecond float64
	limiter   *xrate.Limiter

	mu     sync.Mutex
	second int64 // since 1970
	count  int   // requests in that second
	before int   // requests in the second before
}

func newRate(perSecond float64) *rate {
	return &rate{perSecond: perSecond, limiter: xrate.NewLimiter(xrate.Limit(perSecond),
		max(1, int(math.Ceil(perSecond))))}
}

// allow counts a request. It returns about how many requests the last second had, and whether
// the request is within the limit. Beyond the limit, the number is above the limit.
func (r *rate) allow(now time.Time) (current int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now.Unix() - r.second {
	case 0:
	case 1:
		r.before, r.count = r.count, 0
	default:
		r.before, r.count = 0, 0
	}
	r.second = now.Unix()
	r.count++
	if r.limiter.AllowN(now, 1) {
		return r.count, true
	}
	// The part of the second before that is less than a second ago.
	left := 1 - float64(now.Nanosecond())/float64(time.Second)
	return max(r.count+int(left*float64(r.before)), int(r.perSecond)+1), false
}

// pace counts a request of a job service for the tenant of a job, unless the request counts
// for the tenant of another job already. It rejects the request if the tenant sends more
// requests than its limit. A job service counts for the tenant of its name before its request
// is read; its jobs may belong to tenants with longer prefixes.
func (a *Access) pace(job, counted string) error {
	if a == nil {
		return nil
	}
	p := a.current.Load()
	tenant := p.tenants.Of(job)
	if tenant == nil || tenant == p.tenants.Of(counted) || p.rates[tenant.Name] == nil {
		return nil
	}
	if current, ok := p.rates[tenant.Name].allow(time.Now()); !ok {
		return tenant.Exceeded(model.LimitRequestsPerSecond, current, tenant.Limits.RequestsPerSecond)
	}
	return nil
}
