package model

import (
	"slices"
	"time"
)

// MaxStopGraces is the maximum number of StopGraces of a reservation.
const MaxStopGraces = 8

// StopGrace is the time that some workers of a version have to end after their termination
// signal. Workers is empty if these are all workers of the version.
type StopGrace struct {
	Grace   time.Duration
	Workers WorkerSet
}

func (g StopGrace) has(id WorkerID) bool { return len(g.Workers) == 0 || g.Workers.Has(id) }

// TaskGrace returns the time that workers with the task have to end after their termination
// signal, unless a cancel shortens it.
func (r *Reservation) TaskGrace() time.Duration {
	if r.Spec.Task.StopGrace > 0 {
		return r.Spec.Task.StopGrace
	}
	return DefaultStopGrace
}

// GraceOf returns the time that a worker has to end after its termination signal.
func (r *Reservation) GraceOf(id WorkerID) time.Duration {
	grace := r.TaskGrace()
	for _, g := range r.StopGraces {
		if g.Grace < grace && g.has(id) {
			grace = g.Grace
		}
	}
	return grace
}

// Shortens reports whether grace is shorter than the time that all workers of the version have
// to end.
func (r *Reservation) Shortens(grace time.Duration) bool {
	return grace < r.TaskGrace() && !slices.ContainsFunc(r.StopGraces, func(g StopGrace) bool {
		return len(g.Workers) == 0 && g.Grace <= grace
	})
}

// Hastened returns the workers among some that have a longer time to end than grace.
func (r *Reservation) Hastened(grace time.Duration, workers WorkerSet) WorkerSet {
	if !r.Shortens(grace) {
		return nil
	}
	for _, g := range r.StopGraces {
		if g.Grace <= grace {
			workers = workers.Minus(g.Workers)
		}
	}
	return workers
}

// WithStopGrace returns StopGraces with a shorter time to end for all workers.
func (r *Reservation) WithStopGrace(grace time.Duration) []StopGrace {
	if !r.Shortens(grace) {
		return r.StopGraces
	}
	graces := slices.DeleteFunc(slices.Clone(r.StopGraces), func(g StopGrace) bool { return g.Grace >= grace })
	return append(graces, StopGrace{Grace: grace})
}

// WithStopGraceOf returns StopGraces with a shorter time to end for workers that Hastened has
// returned.
func (r *Reservation) WithStopGraceOf(grace time.Duration, workers WorkerSet) []StopGrace {
	if len(workers) == 0 {
		return r.StopGraces
	}
	var graces []StopGrace
	for _, g := range r.StopGraces {
		switch {
		case g.Grace < grace || len(g.Workers) == 0:
			graces = append(graces, g)
		case g.Grace == grace:
			workers = workers.Raise(g.Workers)
		default:
			if g.Workers = g.Workers.Minus(workers); len(g.Workers) > 0 {
				graces = append(graces, g)
			}
		}
	}
	return append(graces, StopGrace{grace, workers})
}
