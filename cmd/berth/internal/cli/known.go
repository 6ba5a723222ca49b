package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

// A name that a command selects is known if Berth stores something about it. An empty list of a
// known name is a result; an unknown name may be misspelled and is an error with exit code 3.

// namesOf returns the names of objects.
func namesOf[M any](list []M, name func(M) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, m := range list {
			if !yield(name(m)) {
				return
			}
		}
	}
}

// comparedName is the error about a name that has been compared with the known names.
type comparedName struct{ error }

func (c comparedName) Unwrap() error { return c.error }

// unknownName returns the error about a name that Berth does not know, with the similar names.
func unknownName(kind, name string, similar iter.Seq[string]) error {
	return comparedName{fault.New(fault.NotFound, fault.ReasonNotFound, "there is no %s %s%s", kind, name,
		fault.DidYouMean(name, similar))}
}

// unknownKey returns the error about reservations that Berth does not know.
func unknownKey(ctx context.Context, c *client.Client, key client.Key) error {
	names := map[string]bool{}
	request := &berthv1.ListReservationsRequest{PageSize: pageSize}
	if key.Stage != "" {
		request.Job = key.Job
	}
	page, err := c.ListPage(ctx, request) // the similar names of the first page are enough
	above := client.Key{Job: key.Job}
	if key.Name != "" {
		above.Stage = key.Stage
	}
	known := key.Stage == "" // nothing is above a job
	for _, r := range page.GetReservations() {
		of := client.KeyOf(r)
		known = known || of.Job == above.Job && (above.Stage == "" || of.Stage == above.Stage)
		switch {
		case key.Stage == "":
			names[of.Job] = true
		case key.Name == "":
			names[of.Job+"/"+of.Stage] = true
		default:
			names[named(of)] = true
		}
	}
	if err == nil && !known {
		return unknownKey(ctx, c, above) // the job or the stage is unknown too
	}
	kind := [...]string{"job", "stage", "reservation"}[strings.Count(named(key), "/")]
	return unknownName(kind, named(key), maps.Keys(names))
}

// checkKey returns an error if Berth stores neither reservations, workers nor volumes that a key
// selects.
func checkKey(ctx context.Context, c *client.Client, key client.Key) error {
	if key.Job == "" {
		return checkStage(ctx, c, key.Stage)
	}
	list, err := c.ListPage(ctx, &berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage, Reservation: key.Name,
		PageSize: 1})
	if err != nil || len(list.GetReservations()) > 0 {
		return err
	}
	workers, err := c.AssignmentsPage(ctx, &berthv1.ListAssignmentsRequest{Job: key.Job, Stage: key.Stage,
		Reservation: key.Name, PageSize: 1})
	if err != nil || len(workers.GetAssignments()) > 0 {
		return err
	}
	if key.Name == "" {
		volumes, err := c.VolumesPage(ctx, &berthv1.ListVolumesRequest{Job: key.Job, Stage: key.Stage, PageSize: 1})
		if err != nil || len(volumes.GetVolumes()) > 0 {
			return err
		}
	}
	return unknownKey(ctx, c, key)
}

// orUnknown returns an error of kind NotFound about what a key selects, or the error about the key if Berth
// does not know it. It returns any other error unchanged.
func orUnknown(ctx context.Context, c *client.Client, key client.Key, err error) error {
	if !fault.Is(err, fault.ReasonNotFound) {
		return err
	}
	return cmp.Or(checkKey(ctx, c, key), err)
}

// checkStage returns an error if no job has reservations of a stage.
func checkStage(ctx context.Context, c *client.Client, stage string) error {
	if stage == "" {
		return nil
	}
	page, err := c.ListPage(ctx, &berthv1.ListReservationsRequest{Stage: stage, PageSize: 1})
	if err != nil || len(page.GetReservations()) > 0 {
		return err
	}
	page, _ = c.ListPage(ctx, &berthv1.ListReservationsRequest{PageSize: pageSize}) // only for similar names
	return unknownName("stage", stage, namesOf(page.GetReservations(), (*berthv1.Reservation).GetStage))
}

// notKnown matches the message of a service about a name that Berth does not know.
var notKnown = regexp.MustCompile(`^there is no (reservation|executor|SKU|pool) "?([^" ]+?)"?(?: in the catalog)?$`)

// withSimilar adds the similar names to an error of a service about a name that Berth does not know.
func withSimilar(ctx context.Context, c *client.Client, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != fault.ReasonNotFound || errors.As(err, new(comparedName)) {
		return err
	}
	match := notKnown.FindStringSubmatch(f.Message)
	if match == nil {
		return err
	}
	var better error
	switch name := match[2]; match[1] {
	case "executor":
		better = checkExecutor(ctx, c, name)
	case "SKU":
		better = checkSKU(ctx, c, name)
	case "pool":
		better = checkPool(ctx, c, name)
	default:
		if parts := strings.Split(name, "/"); len(parts) == 3 {
			better = unknownKey(ctx, c, client.Key{Job: parts[0], Stage: parts[1], Name: parts[2]})
		}
	}
	if !fault.Is(better, fault.ReasonNotFound) {
		return err
	}
	before := strings.TrimSuffix(err.Error(), f.Error())
	if f.Message = fault.Of(better).Message; before != "" {
		return fmt.Errorf("%s%w", before, f)
	}
	return err
}

// checkExecutor returns an error if no executor has an ID.
func checkExecutor(ctx context.Context, c *client.Client, id string) error {
	if id == "" {
		return nil
	}
	_, err := c.Executor(ctx, id)
	if !fault.Is(err, fault.ReasonNotFound) {
		return err
	}
	return unknownName("executor", id, executorIDs(ctx, c))
}

// executorIDs returns the IDs of the first page of executors, which is enough for similar IDs.
func executorIDs(ctx context.Context, c *client.Client) iter.Seq[string] {
	page, _ := c.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{PageSize: pageSize})
	return namesOf(page.GetExecutors(), (*berthv1.Executor).GetId)
}

// checkSKU returns an error if a SKU is neither in the catalog nor the SKU of an executor.
func checkSKU(ctx context.Context, c *client.Client, name string) error {
	if name == "" {
		return nil
	}
	list, err := c.SKUs(ctx)
	if err != nil {
		return err
	}
	page, err := c.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{Sku: name, PageSize: 1})
	same := func(s *berthv1.Sku) bool { return strings.EqualFold(s.GetName(), name) }
	if err != nil || len(page.GetExecutors()) > 0 || slices.ContainsFunc(list.GetSkus(), same) {
		return err
	}
	return unknownName("SKU", name, namesOf(list.GetSkus(), (*berthv1.Sku).GetName))
}

// checkPool returns an error if a pool is neither in the catalog nor the pool of an executor.
func checkPool(ctx context.Context, c *client.Client, name string) error {
	if name == "" {
		return nil
	}
	list, err := c.Pools(ctx)
	if err != nil {
		return err
	}
	page, err := c.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{Pool: name, PageSize: 1})
	same := func(p *berthv1.Pool) bool { return strings.EqualFold(p.GetName(), name) }
	if err != nil || len(page.GetExecutors()) > 0 || slices.ContainsFunc(list.GetPools(), same) {
		return err
	}
	return unknownName("pool", name, namesOf(list.GetPools(), (*berthv1.Pool).GetName))
}
