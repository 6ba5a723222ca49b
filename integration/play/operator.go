package play

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
)

// flush cancels the queued reservations of a job, or of the group of a reservation: `flush
// group of KEY`.
func (p *player) flush(w *words) (string, error) {
	request := &berthv1.FlushReservationsRequest{RequestId: p.requestID()}
	if request.Job = w.next("job"); request.Job == "group" && len(w.bare) > 0 {
		w.expect("of")
		key := w.key()
		groups, refused := p.groups()
		if refused != nil {
			return refusal(refused), nil
		}
		request.Job = ""
		for _, g := range groups {
			if h := g.GetHead(); h.GetJob() == key.Job && h.GetStage() == key.Stage && h.GetName() == key.Name {
				request.Group = g.GetId()
			}
		}
	}
	return cancelled(call(p, p.reservations.FlushReservations, request))
}

func (p *player) markReady(*words) (string, error) {
	answer, refused := call(p, p.reservations.MarkReady, &berthv1.MarkReadyRequest{RequestId: p.requestID()})
	if refused != nil {
		return refusal(refused), nil
	}
	if answer.GetReadySince() == nil {
		return "not ready", nil
	}
	return "ready", nil
}

// disable disables executors, by IDs or by attributes, permanently or for a time.
func (p *player) disable(w *words) (string, error) {
	request := &berthv1.DisableExecutorsRequest{
		RequestId: w.text("request"), Reason: "played",
		Selector: &berthv1.ExecutorSelector{Ids: w.bare, Attributes: w.attributes()},
	}
	w.bare = nil
	if w.has("for") {
		// The cluster's clock determines the expiry.
		request.ExpireTime = timestamppb.New(p.Now().Add(w.duration(w.text("for"))))
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	answer, refused := call(p, p.executors.DisableExecutors, request)
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("disabled %d", answer.GetExecutors()), nil
}

// enable ends a disable request.
func (p *player) enable(w *words) (string, error) {
	answer, refused := call(p, p.executors.EnableExecutors, &berthv1.EnableExecutorsRequest{
		RequestId: p.requestID(), DisableRequestId: w.next("request"),
	})
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("undone %d", answer.GetUndone()), nil
}

func (p *player) drain(w *words) (string, error) {
	answer, refused := call(p, p.executors.DrainExecutor, &berthv1.DrainExecutorRequest{Id: w.next("id"),
		RequestId: p.requestID(), Reason: "played", Grace: w.grace()})
	if refused != nil {
		return refusal(refused), nil
	}
	if !answer.GetDraining() {
		return "not draining", nil
	}
	return "draining", nil
}

// claim claims idle executors of a SKU for removal.
func (p *player) claim(w *words) (string, error) {
	request := &berthv1.ClaimForScaleDownRequest{RequestId: w.text("request"), Sku: w.next("SKU"),
		Max: int32(w.number("max"))}
	if request.RequestId == "" {
		request.RequestId = p.requestID()
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	answer, refused := call(p, p.executors.ClaimForScaleDown, request)
	if refused != nil {
		return refusal(refused), nil
	}
	return sorted(lines(answer.GetExecutors(), func(e *berthv1.IdleExecutor) string { return e.GetId() })), nil
}

// pool defines a pool and its policy.
func (p *player) pool(w *words) (string, error) {
	pool := &berthv1.Pool{Name: w.next("name"), Attributes: w.attributes()}
	if w.has("lostAfter") {
		pool.LostAfter = durationpb.New(w.duration(w.text("lostAfter")))
	}
	if _, refused := call(p, p.catalog.PutPool, &berthv1.PutPoolRequest{Pool: pool}); refused != nil {
		return refusal(refused), nil
	}
	return "ok", nil
}
