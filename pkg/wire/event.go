package wire

import (
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// EncodeEvent returns the stored value of a job event. n is the number of the event among
// all events of its service in the term. The cursor of the event consists of its revision
// and n; a reader adds the revision, which is not known yet.
func EncodeEvent(e model.JobEvent, n int64) ([]byte, error) {
	m := &berthv1.Event{
		Cursor: strconv.FormatInt(n, 10), Kind: berthv1.Event_Kind(e.Kind), Time: Timestamp(e.Time),
		Job: e.Key.Job, Stage: e.Key.Stage, Reservation: e.Key.Name, Uid: e.UID,
		Count: e.Count, Reason: optional(string(e.Reason)), Message: optional(e.Message),
		TraceId: optional(e.Trace.ID()),
		Workers: make([]*berthv1.EventWorker, len(e.Workers)),
	}
	for i, w := range e.Workers {
		m.Workers[i] = &berthv1.EventWorker{
			Index: w.ID.Index, Number: w.ID.Number, Executor: optional(w.Executor),
			State: optional(berthv1.Assignment_State(w.State)), Reason: optional(string(w.Reason)), ExitCode: w.ExitCode,
			Message: optional(w.Message),
		}
	}
	return proto.Marshal(m)
}

// CursorOf returns the cursor after all events of a revision, for a list at that
// revision. The second part of this cursor is higher than the number of any event.
func CursorOf(revision int64) string { return fmt.Sprintf("%d-%d", revision, math.MaxInt64) }
