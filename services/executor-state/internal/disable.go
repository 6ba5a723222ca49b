package internal

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/executor-state/policy"
)

// requestID returns the given ID. If it is empty, requestID returns a random ID, so the
// call cannot be repeated.
func requestID(given string) string {
	if given == "" {
		return rand.Text()
	}
	return given
}

func selector(m *berthv1.ExecutorSelector) policy.Selector {
	return policy.Selector{IDs: m.GetIds(), Attributes: m.GetAttributes()}
}

// DisableExecutors implements berth.v1.Executors.
func (s *Executors) DisableExecutors(ctx context.Context,
	req *berthv1.DisableExecutorsRequest) (*berthv1.DisableExecutorsAnswer, error) {
	expireAt, err := expireTime(req.GetExpireTime())
	if err != nil {
		return nil, err
	}
	value, err := s.loop.Do(ctx, policy.Disable{
		RequestID: requestID(req.GetRequestId()), Selector: selector(req.GetSelector()),
		ExpireAt: expireAt, Reason: req.GetReason(),
	})
	if err != nil {
		return nil, err
	}
	disabled := value.(policy.Disabled)
	return &berthv1.DisableExecutorsAnswer{RequestId: disabled.RequestID, Executors: int32(disabled.Executors),
		Unknown: disabled.Unknown}, nil
}

// EnableExecutors implements berth.v1.Executors.
func (s *Executors) EnableExecutors(ctx context.Context,
	req *berthv1.EnableExecutorsRequest) (*berthv1.EnableExecutorsAnswer, error) {
	caller := access.CallerIn(ctx).Identity
	value, err := s.loop.Do(ctx, policy.Enable{
		RequestID: requestID(req.GetRequestId()), DisableRequestID: req.GetDisableRequestId(),
		Selector: selector(req.GetSelector()), ClaimOnly: caller != nil && caller.Role == identity.Autoscaler,
	})
	if err != nil {
		return nil, err
	}
	enabled := value.(policy.Enabled)
	return &berthv1.EnableExecutorsAnswer{RequestId: enabled.RequestID, Undone: int32(enabled.Undone)}, nil
}

// DrainExecutor implements berth.v1.Executors.
func (s *Executors) DrainExecutor(ctx context.Context, req *berthv1.DrainExecutorRequest) (*berthv1.Executor, error) {
	expireAt, err := expireTime(req.GetExpireTime())
	if err != nil {
		return nil, err
	}
	grace, err := wire.StopGraceOf(req.GetGrace())
	if err != nil {
		return nil, err
	}
	value, err := s.loop.Do(ctx, policy.Drain{
		ID: req.GetId(), RequestID: requestID(req.GetRequestId()), Reason: req.GetReason(), ExpireAt: expireAt, Grace: grace,
	})
	if err != nil {
		return nil, err
	}
	return executor(value.(inventory.ExecutorView)), nil
}

// ClaimForScaleDown implements berth.v1.Executors.
func (s *Executors) ClaimForScaleDown(ctx context.Context,
	req *berthv1.ClaimForScaleDownRequest) (*berthv1.ClaimForScaleDownAnswer, error) {
	expireAt, err := expireTime(req.GetExpireTime())
	if err != nil {
		return nil, err
	}
	value, err := s.loop.Do(ctx, policy.Claim{
		RequestID: requestID(req.GetRequestId()), SKU: req.GetSku(), Max: int(req.GetMax()), ExpireAt: expireAt,
	})
	if err != nil {
		return nil, err
	}
	claimed := value.(policy.Claimed)
	answer := &berthv1.ClaimForScaleDownAnswer{RequestId: claimed.RequestID}
	for _, id := range claimed.Executors {
		answer.Executors = append(answer.Executors, &berthv1.IdleExecutor{
			Id: id, Sku: claimed.SKU, Reason: string(fault.ReasonClaimed), Since: wire.Timestamp(claimed.Since),
			Message: "claimed for scale-down: the executor gets no work until the claim ends",
		})
	}
	return answer, nil
}

// expireTime checks and converts the expireTime of a request.
func expireTime(t *timestamppb.Timestamp) (time.Time, error) {
	return wire.Time(t), checkTime("expireTime", t)
}

// checkTime returns an error if the time in a field is set and invalid.
func checkTime(field string, t *timestamppb.Timestamp) error {
	if t != nil && !t.IsValid() {
		return fault.BadField(fault.ReasonInvalid, field, "must be a valid time")
	}
	return nil
}
