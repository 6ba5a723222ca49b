package loop

import (
	"cmp"
	"slices"
)

// excess is what a service must delete next: one of its segments, or the events of one
// job in a segment and in all earlier segments.
type excess struct {
	segment, lease int64
	// job is empty if the whole segment is deleted.
	job string
	// keptFrom is the revision from which all events of the job remain.
	keptFrom int64
}

// excess returns what a service must delete next. The oldest segment of all services is
// deleted first, but never a segment to which its service still adds events. A service
// without a leader cannot delete its segments. Therefore the other services wait for the
// owner of the oldest segment only up to the size that beyond returns.
func (k *EventIndex) excess(service string, limits EventLimits) (excess, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.counted {
		return excess{}, false
	}
	if k.bytes > limits.Bytes {
		if s := k.oldest(service, k.bytes > beyond(limits.Bytes), func(*segment) bool { return true }); s != nil {
			return excess{segment: s.number, lease: s.lease}, true
		}
	}
	for _, job := range k.jobsAbove(limits.PerJob) {
		s := k.oldest(service, job.events > beyond(limits.PerJob), func(s *segment) bool { return s.parts[job].events > 0 })
		if s == nil {
			continue
		}
		after := slices.IndexFunc(k.segments, func(a *segment) bool { return a.service == service && a.number > s.number })
		if after >= 0 {
			return excess{segment: s.number, job: job.name, keptFrom: k.segments[after].created}, true
		}
	}
	return excess{}, false
}

// oldest returns the oldest segment of a service that matches and to which the service
// adds no more events. It returns nil if another service has an older matching segment,
// unless overdue is true.
func (k *EventIndex) oldest(service string, overdue bool, match func(*segment) bool) *segment {
	for _, s := range k.segments {
		switch {
		case s.number == k.newest[s.service] || !match(s):
		case s.service == service:
			return s
		case !overdue:
			return nil
		}
	}
	return nil
}

// jobsAbove returns the jobs with more events than the limit, in order of name.
func (k *EventIndex) jobsAbove(limit int) []*jobEvents {
	var jobs []*jobEvents
	for job := range k.aboveLimit {
		if job.events > limit {
			jobs = append(jobs, job)
		} else {
			delete(k.aboveLimit, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *jobEvents) int { return cmp.Compare(a.name, b.name) })
	return jobs
}

// newestOf returns the number of a service's newest segment, or 0 if the service never
// had one. If that segment has expired, newestOf also returns a revision that is not
// before the expiry; otherwise it returns 0.
func (k *EventIndex) newestOf(service string) (number, expired int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	number = k.newest[service]
	if number == 0 || k.byID[segmentID{service, number}] != nil {
		return number, 0
	}
	return number, max(k.expired[service], k.snapshot)
}
