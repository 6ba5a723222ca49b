package compose

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
)

// kindUnavailable is the kind of the finding about a service that does not answer. The
// finding has no start time, because the gateway has no memory of earlier calls.
const kindUnavailable = "SERVICE_UNAVAILABLE"

// lister lists the findings of one service.
type lister struct {
	service string
	list    func(context.Context, *berthv1.ListFindingsRequest, ...grpc.CallOption) (*berthv1.ListFindingsAnswer, error)
}

// ListFindings returns the findings of all services and of this gateway, oldest first. If a service does not
// answer, the list begins with a finding about this service. An empty list therefore always
// means that all services answered and have no findings.
func (s *Server) ListFindings(ctx context.Context, q *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer,
	error) {
	listers := []lister{
		{model.ServiceRegistry, s.queue.QueueFindings},
		{model.ServiceExecutorState, s.inventory.InventoryFindings},
		{model.ServiceAssigner, s.dispatch.DispatchFindings},
	}
	part, cancel := brief(ctx)
	defer cancel()
	found := make([][]*berthv1.Finding, len(listers))
	var wait sync.WaitGroup
	for i, l := range listers {
		wait.Go(func() { found[i] = l.findings(part, q) })
	}
	wait.Wait()
	if err := ended(ctx); err != nil {
		return nil, err
	}
	if s.Own != nil {
		found = append(found, s.Own())
	}
	all := oncePerObject(slices.Concat(found...))
	slices.SortStableFunc(all, func(a, b *berthv1.Finding) int {
		return cmp.Or(
			cmp.Compare(a.GetSince().GetSeconds(), b.GetSince().GetSeconds()),
			cmp.Compare(a.GetSince().GetNanos(), b.GetSince().GetNanos()),
			cmp.Compare(a.GetKind(), b.GetKind()),
			cmp.Compare(a.GetObject(), b.GetObject()),
		)
	})
	return &berthv1.ListFindingsAnswer{Findings: all}, nil
}

// kindPoison is the kind of the finding about a quarantined record or request. Several
// services read the same record, so each of them may quarantine it.
const kindPoison = "POISON"

// oncePerObject merges the findings about a record that several services quarantine. It
// keeps the finding of the service that writes the record, and adds the names of the other
// services to it.
func oncePerObject(all []*berthv1.Finding) []*berthv1.Finding {
	first := map[string]*berthv1.Finding{}
	others := map[string][]string{}
	merged := all[:0]
	for _, f := range all {
		object := f.GetObject()
		kept := first[object]
		switch {
		case f.GetKind() != kindPoison:
			merged = append(merged, f)
		case kept == nil:
			first[object] = f
			merged = append(merged, f)
		case f.GetService() == kept.GetService():
		default:
			if f.GetService() == writer(object) {
				merged[slices.Index(merged, kept)], first[object] = f, f
				f = kept
			}
			others[object] = append(others[object], f.GetService())
		}
	}
	for object, services := range others {
		slices.Sort(services)
		first[object].Message += "; also quarantined by the " + strings.Join(slices.Compact(services), " and the ")
	}
	return merged
}

// writer returns the service that writes the records under a key.
func writer(object string) string {
	prefix, _, _ := strings.Cut(object, "/")
	if prefix == "executors" {
		return model.ServiceExecutorState
	}
	return prefix
}

func (l lister) findings(ctx context.Context, q *berthv1.ListFindingsRequest) []*berthv1.Finding {
	answer, err := l.list(ctx, q)
	if err != nil {
		return []*berthv1.Finding{{
			Kind: kindUnavailable, Object: l.service, Service: model.ServiceGateway,
			Message: rpc.FromStatus(err).Message,
			Action:  "Calls to this service wait until it answers. Start its replicas, check that the gateway reaches them, and check etcd: run berth doctor.",
		}}
	}
	for _, f := range answer.GetFindings() {
		f.Service = cmp.Or(f.GetService(), l.service)
	}
	return answer.GetFindings()
}
