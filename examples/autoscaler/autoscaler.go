// Package autoscaler keeps the instance group of a SKU at the size that its scale rule
// advises. Copy it, and implement Group with the API of your cloud.
package autoscaler

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// Group is a group of hosts. The agent on each host registers an executor of one SKU, whose
// ID is the name of the host.
type Group interface {
	// Hosts returns the names of all hosts, including those that are still starting. It must
	// omit hosts that will never register, such as hosts that failed to boot.
	Hosts(ctx context.Context) ([]string, error)
	// Grow starts n further hosts, and may return before they run.
	Grow(ctx context.Context, n int) error
	// Remove deletes the named hosts and no others.
	Remove(ctx context.Context, hosts []string) error
}

const (
	// claimed is how long a claim keeps executors out of use. If the autoscaler stops before
	// it removes them, Berth uses them again after this time.
	claimed = 10 * time.Minute
	// maxClaim is the maximum number of executors in a claim.
	maxClaim = 1000
)

// Step compares the advice with the group once and acts on the difference. Call it every
// ten seconds or so, from one goroutine of one process. After an error, call it again: it
// does nothing unless it knows the advice.
func Step(ctx context.Context, berth *client.Client, sku string, group Group) error {
	hosts, err := group.Hosts(ctx) // before the list of executors, so that no host is missing in both
	if err != nil {
		return err
	}
	missing, _, err := Missing(ctx, berth, sku, hosts)
	switch {
	case err != nil:
		return err
	case missing > 0:
		return group.Grow(ctx, missing)
	case missing < 0:
		return shrink(ctx, berth, sku, group, min(-missing, maxClaim))
	}
	return nil
}

// Missing returns how many hosts to start in addition to the given ones or, if it is
// negative, how many to remove. It also returns the executors of the SKU by their IDs. It
// returns an error if the advice is unknown.
func Missing(ctx context.Context, berth *client.Client, sku string,
	hosts []string) (int, map[string]*berthv1.Executor, error) {
	executors := map[string]*berthv1.Executor{}
	for e, err := range berth.Executors(ctx, &berthv1.ListExecutorsRequest{Sku: sku}) {
		if err != nil {
			return 0, nil, err
		}
		executors[e.GetId()] = e
	}
	starting := 0
	for _, host := range hosts {
		if e := executors[host]; e == nil || e.GetState() == berthv1.Executor_LOST {
			starting++
		}
	}
	usage, err := berth.Usage(ctx, sku)
	if err != nil {
		return 0, nil, err
	}
	if len(usage.GetSkus()) == 0 {
		return 0, nil, fmt.Errorf("no SKU %s is in the catalog or registered", sku)
	}
	row := usage.GetSkus()[0]
	missing := int(row.GetWantedSize() - row.GetTotal())
	if missing > 0 {
		missing = max(0, missing-starting)
	}
	return missing, executors, nil
}

// shrink removes up to n hosts without workers. If Remove fails, the claim stays until it
// expires, because some of the hosts may be deleted.
func shrink(ctx context.Context, berth *client.Client, sku string, group Group, n int) error {
	claim, err := berth.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{
		Sku: sku, Max: int32(n), ExpireTime: timestamppb.New(time.Now().Add(claimed)),
	})
	if err != nil || len(claim.GetExecutors()) == 0 {
		return err
	}
	var hosts []string
	for _, e := range claim.GetExecutors() {
		hosts = append(hosts, e.GetId())
	}
	return group.Remove(ctx, hosts)
}
