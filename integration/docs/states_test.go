package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

const states = "docs/reference/states.md"

// generatedTable compares the table of a document that has the given head with rows. With
// -rewrite, it replaces the rows.
func generatedTable(t *testing.T, document, head string, rows []string) {
	t.Helper()
	table := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(head) + `\n\|[-|]+\n(?:\|.*\n)*`)
	text := read(t, document)
	if !table.MatchString(text) {
		t.Fatalf("%s has no table %s", document, head)
	}
	line := strings.Repeat("|---", strings.Count(head, "|")-1) + "|"
	wanted := head + "\n" + line + "\n" + strings.Join(rows, "\n") + "\n"
	generated(t, document, table.ReplaceAllLiteralString(text, wanted))
}

// TestTransitionsMatchTables checks the transitions of reservations and of workers against
// the tables of the registry and of the assigner.
func TestTransitionsMatchTables(t *testing.T) {
	var rows []string
	for _, e := range queue.Edges {
		from, event := "new", "none"
		if e.From != model.StateUnset {
			from = code(e.From.String())
		}
		if e.Event != 0 {
			event = code(berthv1.Event_Kind(e.Event).String())
		}
		rows = append(rows, fmt.Sprintf("| %s | `%s` | %s | %s |", from, e.To, e.When, event))
	}
	generatedTable(t, states, "| from | to | when | event |", rows)

	rows = nil
	for _, e := range dispatch.Edges {
		step := fmt.Sprintf("; `%s` → `%s`", e.From, e.To)
		owned := slices.IndexFunc(rows, func(row string) bool { return strings.HasPrefix(row, "| "+e.Owner+" |") })
		switch {
		case owned < 0:
			rows = append(rows, fmt.Sprintf("| %s | %s |", e.Owner, step[2:]))
		default:
			rows[owned] = strings.TrimSuffix(rows[owned], " |") + step + " |"
		}
	}
	generatedTable(t, states, "| decided by | transitions |", rows)
}

// TestVolumeTransitionsMatchTable checks the transitions of volumes against the table of
// executor-state.
func TestVolumeTransitionsMatchTable(t *testing.T) {
	var rows []string
	for _, e := range inventory.VolumeEdges {
		from, to := "new", "deleted"
		if e.From != model.VolumeUnset {
			from = code(e.From.String())
		}
		if e.To != model.VolumeUnset {
			to = code(e.To.String())
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", from, to, e.Event, e.Holds))
	}
	generatedTable(t, states, "| from | to | when | then it holds |", rows)
}

// TestOfferTransitionsMatchTable checks the transitions of offers against the table of
// executor-state.
func TestOfferTransitionsMatchTable(t *testing.T) {
	var rows []string
	for _, e := range inventory.OfferEdges {
		from := "new"
		if e.From != model.CellUnset {
			from = code(e.From.String())
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", from, code(e.To.String()), e.Event))
	}
	generatedTable(t, states, "| from | to | when |", rows)
}

// TestRequeuedEndsMatchCode checks which ends of workers each policy names.
func TestRequeuedEndsMatchCode(t *testing.T) {
	ends := []model.TaskWorker{{State: model.WorkerCompleted}}
	for _, reason := range []fault.Reason{fault.ReasonExited, fault.ReasonKilled, fault.ReasonStartFailed,
		fault.ReasonStartTimeout, fault.ReasonCellWorkerLost, fault.ReasonAttemptsExhausted,
		fault.ReasonExecutorRefuses} {
		ends = append(ends, model.TaskWorker{State: model.WorkerFailed, Reason: reason})
	}
	for _, reason := range []fault.Reason{fault.ReasonExecutorLost, fault.ReasonNotReported} {
		ends = append(ends, model.TaskWorker{State: model.WorkerLost, Reason: reason})
	}
	for _, reason := range []fault.Reason{fault.ReasonStopped, fault.ReasonExecutorDraining, fault.ReasonCancelled,
		fault.ReasonExpired, fault.ReasonLifetime} {
		ends = append(ends, model.TaskWorker{State: model.WorkerEvicted, Reason: reason})
	}
	policies := []model.Spec{
		{OnFailure: model.OnFailureRequeue},
		{OnFailure: model.OnFailureNotify, Restart: model.RestartOnFailure},
		{OnFailure: model.OnFailureNotify, Restart: model.RestartAlways},
		{OnFailure: model.OnFailureNotify, OnWorkerLoss: model.OnLossReplace},
	}
	var rows []string
	for _, end := range ends {
		was := model.TaskWorker{State: model.WorkerRunning}
		if end.State == model.WorkerEvicted && end.Reason != fault.ReasonStopped {
			was.State, was.Reason = model.WorkerEvict, end.Reason
		}
		row := fmt.Sprintf("| `%s` | %s |", end.State, code(string(end.Reason)))
		for _, policy := range policies {
			if dispatch.PolicyNames(&policy, &was, &end) {
				row += " yes |"
			} else {
				row += " |"
			}
		}
		rows = append(rows, row)
	}
	generatedTable(t, states,
		"| end | reason | `onAssignmentFailure: REQUEUE` | `restart: ON_FAILURE` | `restart: ALWAYS` | `onWorkerLoss: REPLACE` |", rows)
}
