package play

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// upsert requests a batch. ifEpoch=last uses the epoch of the current version.
// ifEpoch=old uses an epoch that does not exist.
func (p *player) upsert(w *words) (string, error) {
	request := &berthv1.UpsertReservationRequest{Reservation: w.reservation(p.Now()), RequestId: w.text("request")}
	if request.RequestId == "" {
		request.RequestId = p.requestID()
	}
	r := request.Reservation
	if w.has("ifEpoch") {
		now, refused := p.read(model.Key{Job: r.Job, Stage: r.Stage, Name: r.Name})
		if refused != nil {
			return refusal(refused), nil
		}
		request.IfEpoch = now.GetEpoch()
		if w.text("ifEpoch") == "old" {
			request.IfEpoch--
		}
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	answer, refused := call(p, p.reservations.UpsertReservation, request)
	if refused != nil {
		return refusal(refused), nil
	}
	text := fmt.Sprintf("%s %s", answer.GetChange(), workersText(answer.GetWorkers()))
	for _, f := range answer.GetFieldResults() {
		if f.GetApplies() != berthv1.FieldResult_NOW || answer.GetChange() == berthv1.UpsertReservationRequest_UPDATED {
			text += fmt.Sprintf(" %s:%s", f.GetField(), f.GetApplies())
		}
	}
	return text, nil
}

// resend sends the answer to a read back as a request.
func (p *player) resend(w *words) (string, error) {
	r, refused := p.read(w.key())
	if refused != nil {
		return refusal(refused), nil
	}
	answer, refused := call(p, p.reservations.UpsertReservation,
		&berthv1.UpsertReservationRequest{Reservation: r, RequestId: p.requestID()})
	if refused != nil {
		return refusal(refused), nil
	}
	return answer.GetChange().String(), nil
}

func (p *player) read(key model.Key) (*berthv1.Reservation, *fault.Error) {
	return call(p, p.reservations.GetReservation, &berthv1.GetReservationRequest{Job: key.Job, Stage: key.Stage,
		Name: key.Name})
}

// bind binds a held reservation. task=yes replaces its task by the usual one.
func (p *player) bind(w *words) (string, error) {
	key := w.key()
	request := &berthv1.BindReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.Name}
	if request.RequestId = w.text("request"); request.RequestId == "" {
		request.RequestId = p.requestID()
	}
	if w.text("task") == "yes" {
		request.Task = task("", false)
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	answer, refused := call(p, p.reservations.BindReservation, request)
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("%s %s", answer.GetChange(), workersText(answer.GetWorkers())), nil
}

func (p *player) cancel(w *words) (string, error) {
	key := w.key()
	request := &berthv1.CancelReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.Name,
		RequestId: p.requestID(), Grace: w.grace()}
	if err := w.problem(); err != nil {
		return "", err
	}
	return cancelled(call(p, p.reservations.CancelReservation, request))
}

func (p *player) cancelJob(w *words) (string, error) {
	return cancelled(call(p, p.reservations.CancelJob, &berthv1.CancelJobRequest{Job: w.next("job"),
		RequestId: p.requestID(), Grace: w.grace()}))
}

// cancelWorkers cancels single workers in any state.
func (p *player) cancelWorkers(w *words) (string, error) {
	job, stage, _ := strings.Cut(w.next("job/stage"), "/")
	request := &berthv1.CancelWorkersRequest{Job: job, Stage: stage, Workers: w.workers(w.next("workers")),
		RequestId: p.requestID(), Grace: w.grace()}
	if err := w.problem(); err != nil {
		return "", err
	}
	answer, refused := call(p, p.reservations.CancelWorkers, request)
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("cancelled %d workers", answer.GetCancelled()), nil
}

func cancelled(answer *berthv1.CancelAnswer, refused *fault.Error) (string, error) {
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("cancelled %d", answer.GetCancelled()), nil
}

func (p *player) get(w *words) (text string, err error) {
	key := w.key()
	err = p.Until(func() bool {
		r, refused := p.read(key)
		if refused != nil {
			text = refusal(refused)
			return true
		}
		text = reservationText(r)
		return !leasing(r)
	})
	return text, err
}

func (p *player) list(w *words) (text string, err error) {
	job := w.next("job")
	err = p.Until(func() bool {
		answer, refused := call(p, p.reservations.ListReservations,
			&berthv1.ListReservationsRequest{Job: job, PageSize: 1000})
		if refused != nil {
			text = refusal(refused)
			return true
		}
		text = lines(answer.GetReservations(), reservationText)
		return !slices.ContainsFunc(answer.GetReservations(), leasing)
	})
	return text, err
}

// leasing reports whether a reservation is in a scheduling cycle in flight, a transient
// state after every change.
func leasing(r *berthv1.Reservation) bool { return r.GetState() == berthv1.Reservation_LEASING }

// lines formats a list with one line for each element.
func lines[T any](list []T, text func(T) string) string {
	if len(list) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for _, item := range list {
		b.WriteString(text(item) + "\n")
	}
	return b.String()
}

// jobs lists the jobs that have not ended.
func (p *player) jobs(*words) (string, error) {
	answer, refused := call(p, p.reservations.ListJobs, &berthv1.ListJobsRequest{})
	if refused != nil {
		return refusal(refused), nil
	}
	return lines(answer.GetJobs(), func(j *berthv1.Job) string {
		delayed := ""
		if n := j.GetDelayedWorkers(); n > 0 {
			delayed = fmt.Sprintf(" delayed=%d", n)
		}
		return fmt.Sprintf("%s reservations=%d queued=%d pending=%d%s reserved=%d running=%d stopping=%d", j.GetName(),
			j.GetReservations(), j.GetPendingReservations(), j.GetPendingWorkers(), delayed, j.GetReservedWorkers(),
			j.GetRunningWorkers(), j.GetStoppingWorkers())
	}), nil
}

func (p *player) pending(*words) (string, error) {
	groups, refused := p.groups()
	if refused != nil {
		return refusal(refused), nil
	}
	return sorted(lines(groups, func(g *berthv1.PendingGroup) string {
		head := g.GetHead()
		return fmt.Sprintf("head %s reservations=%d workers=%d reason=%s of %s",
			keyText(head.GetJob(), head.GetStage(), head.GetName()),
			g.GetReservations(), g.GetWorkers(), g.GetReason(), constraintsText(g.GetConstraints()))
	})), nil
}

// groups returns all pages of the list of queues.
func (p *player) groups() (groups []*berthv1.PendingGroup, refused *fault.Error) {
	for request := (&berthv1.ListPendingRequest{}); ; {
		page, refused := call(p, p.reservations.ListPending, request)
		if refused != nil {
			return nil, refused
		}
		groups = append(groups, page.GetGroups()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			return groups, nil
		}
	}
}

// sorted sorts the lines of a list for which the API guarantees no order.
func sorted(text string) string {
	list := strings.Split(strings.TrimRight(text, "\n"), "\n")
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// workers shows the assignments of a job that have not ended.
func (p *player) workers(w *words) (string, error) {
	answer, refused := call(p, p.assignments.ListAssignments,
		&berthv1.ListAssignmentsRequest{Job: w.next("job"), PageSize: 1000})
	if refused != nil {
		return refusal(refused), nil
	}
	live := slices.DeleteFunc(slices.Clone(answer.GetAssignments()), func(a *berthv1.Assignment) bool {
		return a.GetState() >= berthv1.Assignment_COMPLETED
	})
	return sorted(lines(live, func(a *berthv1.Assignment) string {
		return fmt.Sprintf("%s %d.%d %s on %s", keyText(a.GetJob(), a.GetStage(), a.GetReservation()), a.GetIndex(),
			a.GetNumber(), a.GetState(), a.GetExecutor())
	})), nil
}

// await waits until a reservation is in one of the named states, if any, and has the
// named values. If the first word is an ID, await waits for an executor.
func (p *player) await(w *words) (string, error) {
	target := w.next("job/stage or executor")
	if !strings.Contains(target, "/") {
		return p.awaitExecutor(target, w)
	}
	w.bare = append([]string{target}, w.bare...)
	key := w.key()
	states := w.bare
	w.bare = nil
	wanted := map[string]string{}
	for name := range w.named {
		wanted[name] = w.text(name)
	}
	var last string
	err := p.Until(func() bool {
		r, refused := p.read(key)
		if refused != nil {
			last = refusal(refused)
			return false
		}
		last = reservationText(r)
		return (len(states) == 0 || slices.Contains(states, r.GetState().String())) && holds(r, wanted)
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, last), nil
	}
	return "ok", nil
}

// holds reports whether a reservation has the wanted values: reason, position, or the
// number of workers in a state.
func holds(r *berthv1.Reservation, wanted map[string]string) bool {
	for name, value := range wanted {
		has := strconv.Itoa(int(r.GetWorkerCounts()[name]))
		switch name {
		case "reason":
			has = r.GetReason()
		case "position":
			has = strconv.Itoa(int(r.GetPosition()))
		case "workers":
			has = workersText(r.GetWorkers())
		}
		if has != value {
			return false
		}
	}
	return true
}

// finish ends the programs of workers.
func (p *player) finish(w *words) (string, error) {
	code := int32(w.number("exit"))
	return p.eachWorker(w, func(worker model.Worker) error { return p.Finish(worker, code) })
}

// ready makes the programs of workers report that they are ready.
func (p *player) ready(w *words) (string, error) { return p.eachWorker(w, p.Ready) }

func (p *player) eachWorker(w *words, do func(model.Worker) error) (string, error) {
	job, stage, _ := strings.Cut(w.next("job/stage"), "/")
	workers := w.workers(w.next("workers"))
	if err := w.problem(); err != nil {
		return "", err
	}
	for _, workerID := range workers {
		err := do(model.Worker{Job: job, Stage: stage, ID: model.WorkerID{Index: workerID.GetIndex(),
			Number: workerID.GetNumber()}})
		if err != nil {
			return err.Error(), nil
		}
	}
	return "ok", nil
}
