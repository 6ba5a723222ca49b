package loop

import (
	"cmp"
	"slices"
)

// excess is what a service has to let go of: one of its segments, or what of
// one job is in it and in those before.
type excess struct {
	number, lease int64
	// job is empty when the whole segment goes.
	job string
	// kept is the revision from which on all events of the job are kept.
	kept int64
}

// excess says what of a service's events is the next to go. Segments that still
// take events never are. It is the oldest that goes, by whichever service wrote
// it; but one that has no leader cannot, and then the others do not wait for it
// without bound.
func (k *Kept) excess(service string, limits EventLimits) (excess, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.counted {
		return excess{}, false
	}
	if k.bytes > limits.Bytes {
		if s := k.next(service, k.bytes > beyond(limits.Bytes), func(*segment) bool { return true }); s != nil {
			return excess{number: s.number, lease: s.lease}, true
		}
	}
	for _, job := range k.tooMany(limits.PerJob) {
		s := k.next(service, job.events > beyond(limits.PerJob), func(s *segment) bool { return s.parts[job].events > 0 })
		if s == nil {
			continue
		}
		after := slices.IndexFunc(k.segments, func(a *segment) bool { return a.service == service && a.number > s.number })
		if after >= 0 {
			return excess{number: s.number, job: job.name, kept: k.segments[after].created}, true
		}
	}
	return excess{}, false
}

// next is the oldest segment of a service among those that match and take no
// more events: nil when another service has an older one, unless this one is not
// to wait for it.
func (k *Kept) next(service string, now bool, match func(*segment) bool) *segment {
	for _, s := range k.segments {
		switch {
		case s.number == k.newest[s.service] || !match(s):
		case s.service == service:
			return s
		case !now:
			return nil
		}
	}
	return nil
}

// tooMany are the jobs with more events than the limit, in order of name.
func (k *Kept) tooMany(limit int) []*jobEvents {
	var jobs []*jobEvents
	for job := range k.over {
		if job.events > limit {
			jobs = append(jobs, job)
		} else {
			delete(k.over, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *jobEvents) int { return cmp.Compare(a.name, b.name) })
	return jobs
}

// newestOf is the number of a service's newest segment, 0 when it never had one;
// and once that has run out, a revision at which it had.
func (k *Kept) newestOf(service string) (number, ranOut int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	number = k.newest[service]
	if number == 0 || k.byID[segmentID{service, number}] != nil {
		return number, 0
	}
	return number, max(k.ranOut[service], k.since)
}
