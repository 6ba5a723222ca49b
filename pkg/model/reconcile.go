package model

// Verdict is the result of comparing an executor's report of one worker with the
// record.
type Verdict uint8

// The verdicts.
const (
	VerdictUnset Verdict = iota
	// Agreed: the worker runs where it should. The report's state is recorded.
	Agreed
	// Adopted: the worker runs, and a higher incarnation of its agent reports it, or it
	// was not acknowledged before. The record gets that incarnation.
	Adopted
	// Ended: the worker has ended. The end is recorded if the record is live, and
	// acknowledged in any case.
	Ended
	// Missing: the worker was acknowledged, and the report proves that it does not run:
	// it becomes LOST.
	Missing
	// Await: the worker is not listed, which proves nothing: its start request or the
	// answer to its stop request may be on the way.
	Await
	// Zombie: the worker runs without a live record: it is stopped.
	Zombie
	// OlderEpoch: the worker runs, and its name has been reused since: it is stopped.
	OlderEpoch
	// Moved: the worker runs, and its record is on another executor: it is stopped
	// here. Workers of a host that returns under a new ID with its old disk get this
	// verdict.
	Moved
	// Duplicate: the report is of an earlier incarnation, from another copy of the
	// agent or a superseded one. It is not used, and a finding reports it.
	Duplicate
)

var verdictNames = [...]string{"", "AGREED", "ADOPTED", "ENDED", "MISSING", "AWAIT", "ZOMBIE", "OLDER_EPOCH",
	"MOVED", "DUPLICATE"}

func (v Verdict) String() string { return verdictNames[v] }

// Stops reports whether the worker is stopped on the executor that reports it.
func (v Verdict) Stops() bool { return v == Zombie || v == OlderEpoch || v == Moved }

// Reported is the state of one worker in a report.
type Reported struct {
	// Ordinal is the ordinal of the executor that reports. Incarnation and Sequence are
	// the report's.
	Ordinal               uint32
	Incarnation, Sequence int64
	// Complete: the report lists every worker that the executor has.
	Complete bool
	// Listed: the report lists this worker, at Epoch and in State.
	Listed bool
	Epoch  int64
	State  WorkerState
}

// Recorded is the record of a worker, at the epoch of its reservation.
type Recorded struct {
	Epoch  int64
	Worker TaskWorker
}

// Reconcile compares a report with the record, which is nil if the worker has none.
// current is the incarnation in the executor's record. This is the whole table; the
// first matching row counts:
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
// A report proves absence if it is complete and later than the worker's
// acknowledgement: of a higher incarnation, or of the same one and a higher sequence. A
// start request that was never acknowledged may still arrive. A worker that is being
// stopped is ended by the answer to the stop request.
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
