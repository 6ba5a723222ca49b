package access

import (
	"math"
	"sync"
	"time"

	xrate "golang.org/x/time/rate"

	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
)

// rate limits the requests of one tenant.
type rate struct {
	perSecond float64
	limiter   *xrate.Limiter

	mu     sync.Mutex
	second int64 // since 1970
	count  int   // requests in that second
}

func newRate(perSecond float64) *rate {
	return &rate{perSecond: perSecond, limiter: xrate.NewLimiter(xrate.Limit(perSecond),
		max(1, int(math.Ceil(perSecond))))}
}

// allow counts a request. It returns the number of requests in the current second, and
// whether the request is within the limit.
func (r *rate) allow(now time.Time) (current int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Unix() != r.second {
		r.second, r.count = now.Unix(), 0
	}
	r.count++
	return r.count, r.limiter.AllowN(now, 1)
}

// pace rejects a request of a job service whose tenant sends more requests than its limit.
func (a *Access) pace(id identity.Identity) error {
	if a == nil || id.Role != identity.Job {
		return nil
	}
	p := a.current.Load()
	tenant := p.tenants.Of(id.Name)
	if tenant == nil || p.rates[tenant.Name] == nil {
		return nil
	}
	if current, ok := p.rates[tenant.Name].allow(time.Now()); !ok {
		return tenant.Exceeded(model.LimitRequestsPerSecond, current, tenant.Limits.RequestsPerSecond)
	}
	return nil
}
