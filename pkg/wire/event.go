package wire

import (
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// EncodeEvent gives the value stored for a job event that is the n-th its
// service wrote in a term: together with the revision that is its cursor, and
// both are whole only when it is read.
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
			State: optional(berthv1.Assignment_State(w.State)), Reason: optional(string(w.Reason)), ExitCode: w.ExitCode, Message: optional(w.Message),
		}
	}
	return proto.Marshal(m)
}

// CursorOf is the place in any job's stream behind all events of a revision:
// that of a list which shows the revision. The events of one revision have
// their numbers in a term beside it, which this one is above.
func CursorOf(revision int64) string { return fmt.Sprintf("%d-%d", revision, math.MaxInt64) }
