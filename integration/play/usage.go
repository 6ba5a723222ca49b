package play

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
)

// sku defines a SKU and its scaling rule.
func (p *player) sku(w *words) (string, error) {
	sku := &berthv1.Sku{Name: w.next("name"), Resources: w.resources(), Attributes: w.attributes()}
	rule := &berthv1.ScaleRule{MinIdle: int32(w.number("minIdle")), MinSize: int32(w.number("minSize"))}
	for name, bound := range map[string]**int32{"maxIdle": &rule.MaxIdle, "maxSize": &rule.MaxSize} {
		if w.has(name) {
			n := int32(w.number(name))
			*bound = &n
		}
	}
	if w.has("cooldown") {
		rule.Cooldown = durationpb.New(w.duration(w.text("cooldown")))
	}
	if w.has("hold") {
		rule.HoldUntil = timestamppb.New(p.Now().Add(w.duration(w.text("hold"))))
	}
	if !proto.Equal(rule, &berthv1.ScaleRule{}) {
		sku.Scale = rule
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	if _, refused := call(p, p.catalog.PutSku, &berthv1.PutSkuRequest{Sku: sku}); refused != nil {
		return refusal(refused), nil
	}
	return "ok", nil
}

// usage shows the usage of one SKU or of all SKUs. If NAME=VALUE words are given, it
// waits until one SKU has these values, because data from other services arrives later.
func (p *player) usage(w *words) (string, error) {
	request := &berthv1.GetUsageRequest{}
	if len(w.bare) > 0 {
		request.Sku = w.next("SKU")
	}
	wanted := w.equations()
	if len(wanted) > 0 && request.Sku == "" {
		return "", fmt.Errorf("%v requires a SKU", wanted)
	}
	var last string
	err := p.Until(func() bool {
		answer, refused := call(p, p.demand.GetUsage, request)
		if refused != nil {
			last = refusal(refused)
			return len(wanted) == 0
		}
		last = lines(answer.GetSkus(), usageText)
		return hasAll(last, wanted)
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, last), nil
	}
	return last, nil
}

func usageText(u *berthv1.SkuUsage) string {
	words := []string{u.GetSku()}
	if u.GetSku() == "" {
		words[0] = "no SKU"
	}
	count := func(name string, n int32) { words = append(words, name+"="+strconv.Itoa(int(n))) }
	count("total", u.GetTotal())
	count("idle", u.GetIdle())
	count("leased", u.GetLeased())
	count("running", u.GetRunning())
	count("unavailable", u.GetUnavailable())
	count("disabled", u.GetDisabled())
	words = append(words, "pending:")
	count("reservations", u.GetPendingReservations())
	count("workers", u.GetPendingWorkers())
	count("executors", u.GetPendingExecutors())
	for _, b := range u.GetPendingBatches() {
		words = append(words, fmt.Sprintf("%dx%d", b.GetCount(), b.GetWorkers()))
	}
	words = append(words, "scale:")
	count("effectiveIdle", u.GetEffectiveIdle())
	count("wanted", u.GetWantedSize())
	words = append(words, "reason="+u.GetWantedReason())
	return strings.Join(words, " ")
}

// unmapped shows the pending requests that fit no SKU. If NAME=VALUE words are given, it
// waits until the output has all these values.
func (p *player) unmapped(w *words) (string, error) {
	wanted := w.equations()
	var last string
	err := p.Until(func() bool {
		answer, refused := call(p, p.demand.GetUsage, &berthv1.GetUsageRequest{})
		if refused != nil {
			last = refusal(refused)
			return len(wanted) == 0
		}
		last = sorted(lines(answer.GetUnmapped(), func(u *berthv1.UnmappedDemand) string {
			return fmt.Sprintf("%s: reservations=%d workers=%d reason=%s", constraintsText(u.GetConstraints()),
				u.GetReservations(), u.GetWorkers(), u.GetReason())
		}))
		return hasAll(last, wanted)
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, last), nil
	}
	return last, nil
}

// idle shows the executors of a SKU that have no workers, and the reason why each
// executor is idle.
func (p *player) idle(w *words) (string, error) {
	answer, refused := call(p, p.executors.ListIdleExecutors,
		&berthv1.ListIdleExecutorsRequest{Sku: w.next("SKU"), Max: 1000})
	if refused != nil {
		return refusal(refused), nil
	}
	return sorted(lines(answer.GetExecutors(),
		func(e *berthv1.IdleExecutor) string { return e.GetId() + " " + e.GetReason() })), nil
}
