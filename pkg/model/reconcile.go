package model

// Verdict is the result of comparing an executor's report of one worker with the
// record.
type Verdict uint8

// The verdicts.
const (
	VerdictUnset Verdict = iota
	// Agreed: the worker runs where its record says. The assigner records the reported
	// state.
	Agreed
	// Adopted: the worker runs, and the report has a higher incarnation than the record, for
	// example because the worker was not acknowledged before. The record gets the
	// incarnation of the report.
	Adopted
	// Ended: the worker has ended. The assigner records the end if the record is live, and
	// acknowledges the end in any case.
	Ended
	// Missing: the executor acknowledged the worker, and the report proves that the worker
	// does not run. The worker becomes LOST.
	Missing
	// Await: the report does not list the worker, but that proves nothing. The start request
	// or the answer to the stop request may not have arrived yet.
	Await
	// Zombie: the worker runs without a live record. The assigner stops it.
	Zombie
	// OlderEpoch: the worker runs, but its name was used again at a higher epoch. The
	// assigner stops the worker.
	OlderEpoch
	// Moved: the worker runs, but its record names another executor. The assigner stops the
	// worker on the executor that reports it. For example, a host returns with its old disk
	// under a new ID.
	Moved
	// Duplicate: the report has an earlier incarnation. It comes from another copy of the
	// agent or from a superseded agent. The assigner ignores the report, and a finding
	// reports it.
	Duplicate
)

var verdictNames = [...]string{"", "AGREED", "ADOPTED", "ENDED", "MISSING", "AWAIT", "ZOMBIE", "OLDER_EPOCH",
	"MOVED", "DUPLICATE"}

func (v Verdict) String() string { return verdictNames[v] }

// Stops reports whether the worker is stopped on the executor that reports it.
func (v Verdict) Stops() bool { return v == Zombie || v == OlderEpoch || v == Moved }

// Reported is the state of one worker in a report.
type Reported struct {
	// Ordinal is the ordinal of the executor that reports. Incarnation and Sequence belong
	// to the report.
	Ordinal               uint32
	Incarnation, Sequence int64
	// Complete is set if the report lists every worker that the executor has.
	Complete bool
	// Listed is set if the report lists this worker, with Epoch and State.
	Listed bool
	Epoch  int64
	State  WorkerState
}

// Recorded is the record of a worker, at the epoch of its reservation.
type Recorded struct {
	Epoch  int64
	Worker TaskWorker
}

// Reconcile compares the report about a worker with the worker's record, which is nil if
// the worker has none. current is the incarnation in the executor's record. This is the
// complete table; the first matching row applies:
//
//	report                      record                            verdict
//	of a lower incarnation      any                               DUPLICATE
//	ended                       any                               ENDED
//	lives                       none                              ZOMBIE
//	lives                       at a higher epoch                 OLDER_EPOCH
//	lives                       at a lower epoch, or ended        ZOMBIE
//	lives                       lives on another executor         MOVED
//	lives, higher incarnation   lives, by a lower one             ADOPTED
//	lives                       lives                             AGREED
//	not listed, proof           STARTING or RUNNING on it         MISSING
//	not listed                  any                               AWAIT
//
// A report proves that a worker does not run if the report is complete and later than the
// worker's acknowledgement. A report is later if it has a higher incarnation, or the same
// incarnation and a higher sequence. If the executor never acknowledged the start
// request, the request may still arrive. A worker that is being stopped ends with the
// answer to the stop request.
func Reconcile(current int64, said Reported, known *Recorded) Verdict {
	switch {
	case said.Incarnation < current:
		return Duplicate
	case !said.Listed:
		if known != nil && known.missing(said) {
			return Missing
		}
		return Await
	case said.State.Terminal():
		return Ended
	case known == nil:
		return Zombie
	case said.Epoch < known.Epoch:
		return OlderEpoch
	case said.Epoch > known.Epoch, known.Worker.State.Terminal():
		return Zombie
	case said.Ordinal != known.Worker.Ordinal:
		return Moved
	case said.Incarnation > known.Worker.Incarnation:
		return Adopted
	}
	return Agreed
}

// missing reports whether a report that does not list the worker proves that it does
// not run.
func (k *Recorded) missing(said Reported) bool {
	w := k.Worker
	if !said.Complete || said.Ordinal != w.Ordinal || w.State != WorkerStarting && w.State != WorkerRunning {
		return false
	}
	return w.Incarnation < said.Incarnation || w.Incarnation == said.Incarnation && w.Sequence < said.Sequence
}
