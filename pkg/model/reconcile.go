package model

// Verdict is what follows from what an executor's report says of one worker,
// held against what is recorded of it.
type Verdict uint8

// The verdicts.
const (
	VerdictUnset Verdict = iota
	// Agreed: it lives where and as it should; what the report says is learned.
	Agreed
	// Adopted: it lives, and a higher incarnation of its agent has it now, or it
	// was not acknowledged before. The record takes that incarnation.
	Adopted
	// EndTold: it has ended. The end is learned where the record lives, and
	// acknowledged in any case.
	EndTold
	// Missing: it was acknowledged, and the report proves that it is gone: it
	// is LOST.
	Missing
	// Await: it is not listed, and that proves nothing: its order may be on its
	// way, or the answer to its stop.
	Await
	// Zombie: it lives, and no record of it does: it is to be stopped.
	Zombie
	// OlderEpoch: it lives, and its name has been used again since: it is to be
	// stopped.
	OlderEpoch
	// Moved: it lives, and belongs on another executor: it is to be stopped
	// here. So come the workers of a host that is back under a new id with its
	// old disk.
	Moved
	// Duplicate: the report is of an earlier incarnation, another copy of the
	// agent or one that was followed: nothing in it counts, and it is told.
	Duplicate
)

var verdictNames = [...]string{"", "AGREED", "ADOPTED", "END_TOLD", "MISSING", "AWAIT", "ZOMBIE", "OLDER_EPOCH", "MOVED", "DUPLICATE"}

func (v Verdict) String() string { return verdictNames[v] }

// Stops says whether the worker is to be stopped on the executor that reports.
func (v Verdict) Stops() bool { return v == Zombie || v == OlderEpoch || v == Moved }

// Reported is what a report says of one worker.
type Reported struct {
	// Ordinal is the executor's that reports; Incarnation and Sequence are the
	// report's.
	Ordinal               uint32
	Incarnation, Sequence int64
	// Complete: the report lists every worker that the executor has.
	Complete bool
	// Listed: it lists this one, at Epoch and in State.
	Listed bool
	Epoch  int64
	State  WorkerState
}

// Recorded is what is recorded of a worker, at the epoch of its reservation.
type Recorded struct {
	Epoch  int64
	Worker TaskWorker
}

// Reconcile holds a report against the record, which is nil where the worker
// has none; current is the incarnation of the executor's own record. It is the
// whole of the table, first row first:
//
//	report                      record                            verdict
//	of a lower incarnation      any                               DUPLICATE
//	ended                       any                               END_TOLD
//	lives                       none                              ZOMBIE
//	lives                       at a higher epoch                 OLDER_EPOCH
//	lives                       at a lower epoch, or ended        ZOMBIE
//	lives                       lives on another executor         MOVED
//	lives, higher incarnation   lives, by a lower one             ADOPTED
//	lives                       lives                             AGREED
//	not listed, proof           STARTING or RUNNING on it         MISSING
//	not listed                  any                               AWAIT
//
// A report proves absence when it is complete and later than the worker's
// acknowledgement: of a higher incarnation, or of the same one and a higher
// sequence. An order that was never acknowledged may still arrive, and of a
// worker that is being stopped the answer to the stop is what ends it.
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
		return EndTold
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

// missing says whether a report that does not list the worker proves that it
// is gone.
func (k *Recorded) missing(said Reported) bool {
	w := k.Worker
	if !said.Complete || said.Ordinal != w.Ordinal || w.State != WorkerStarting && w.State != WorkerRunning {
		return false
	}
	return w.Incarnation < said.Incarnation || w.Incarnation == said.Incarnation && w.Sequence < said.Sequence
}
