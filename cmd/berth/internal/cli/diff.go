package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/jobfile"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/request"
)

// difference is a difference between an object in the cluster and a document.
type difference struct {
	Object string `json:"object"`
	Diff   string `json:"diff"`
}

// diffAll prints the differences between the cluster and documents. It writes nothing to
// the cluster. It returns errDiffers if there are differences.
func (a *app) diffAll(ctx context.Context, c *client.Client, documents []jobfile.Document, output string) error {
	differences := []difference{}
	var texts, names strings.Builder
	err := a.eachDocument(documents, func(document jobfile.Document) error {
		ctx, cancel := a.limited(ctx)
		defer cancel()
		name, has, wants, warnings, err := compared(ctx, c, document)
		if err != nil {
			return err
		}
		for _, warning := range warnings {
			fmt.Fprintf(a.Err, "berth: warning: %s: %s\n", document.Place, warning)
		}
		before, err := requestText(has)
		if err != nil {
			return err
		}
		after, err := requestText(wants)
		if err != nil {
			return err
		}
		if text := diff.Diff("cluster: "+name, before, document.Place, after); len(text) > 0 {
			differences = append(differences, difference{name, string(text)})
			texts.Write(text)
			names.WriteString(name + "\n")
		}
		return nil
	})
	if printed := a.value(output, map[string][]difference{"differences": differences}, texts.String(),
		names.String()); printed != nil {
		return printed
	}
	if err == nil && len(differences) > 0 {
		return errDiffers
	}
	return err
}

// requestText returns a document as text, or nothing for nil.
func requestText(m proto.Message) ([]byte, error) {
	if m == nil {
		return nil, nil
	}
	return show.Request(m)
}

// compared returns the name of a document's object, what the cluster has, and what the
// document says. If the cluster has no such object, has is nil. The warnings name the workers that the
// document stops, and the fields that apply to no worker.
func compared(ctx context.Context, c *client.Client, document jobfile.Document) (name string, has, wants proto.Message,
	warnings []string, err error) {
	switch {
	case document.SKU != nil:
		name = document.SKU.GetName()
		document.SKU = wire.SKU(wire.SKUOf(document.SKU)) // as executor-state does
		document.SKU.Resources = resource.Vector(document.SKU.Resources).WithSlots()
		has, err = existing(c.SKU(ctx, name))
		return "sku " + name, has, document.SKU, nil, err
	case document.Pool != nil:
		name = document.Pool.GetName()
		has, err = existing(c.Pool(ctx, name))
		return "pool " + name, has, document.Pool, nil, err
	}
	if document.UID != "" && len(document.Reservation.Workers) == 0 {
		if err := fillWorkers(ctx, c, document); err != nil {
			return "", nil, nil, nil, err
		}
	}
	file, err := upsertOf(document.Reservation)
	if err == nil {
		err = request.Validate(file)
	}
	if err != nil {
		return "", nil, nil, nil, err
	}
	name = file.Key.String()
	stops, own, err := surplus(ctx, c, file)
	if err != nil {
		return "", nil, nil, nil, err
	}
	if text := stopsText(stops); text != "" {
		warnings = append(warnings, text)
	}
	now, err := c.Get(ctx, client.Key(file.Key))
	switch {
	case fault.Is(err, fault.ReasonNotFound), err == nil && client.Ended(now.GetState()):
		return name, nil, requestOf(file), warnings, nil // Berth creates a version
	case err != nil:
		return "", nil, nil, nil, err
	}
	latest := proto.CloneOf(now)
	jobfile.Strip(now)
	newest, err := upsertOf(now)
	if err != nil {
		return "", nil, nil, nil, err
	}
	// The forms of workers are those of the file: the listed workers, or their number.
	workers := model.WorkerSetOf(newest.Workers)
	counted := model.Upsert{Count: int32(workers.Len())}
	switch {
	case file.Count > 0 && request.SameWorkers(counted, workers):
		newest.Count, newest.Workers = counted.Count, nil
	case file.Count == 0 && request.SameWorkers(file, workers):
		newest.Workers = file.Workers // perhaps without numbers
	}
	var running int
	for _, state := range []model.WorkerState{model.WorkerAssigned, model.WorkerStarting, model.WorkerRunning} {
		running += int(latest.GetWorkerCounts()[state.String()])
	}
	switch { // the latest request was for other workers than the reservation has
	case latest.GetRequestedCount() > 0:
		newest.Count, newest.Workers = latest.GetRequestedCount(), nil
	case len(latest.GetRequestedWorkers()) > 0:
		newest.Count, newest.Workers = 0, requestedIDs(latest.GetRequestedWorkers())
	}
	if latest.GetBoundTask() { // the request for the hold may be repeated
		newest.Spec.Task = file.Spec.Task
	}
	// The registry compares the constraints as requested, and with the default attributes.
	recorded := wire.ConstraintsOf(now.GetConstraints())
	recorded.Resources = newest.Spec.Constraints.Resources
	if request.SameConstraints(file.Spec.Constraints, recorded.Requested()) ||
		request.SameConstraints(file.Spec.Constraints, recorded) {
		newest.Spec.Constraints = file.Spec.Constraints
	} else {
		newest.Spec.Constraints = recorded.Requested()
	}
	warnings = append(warnings, notApplied(latest, newest, file, running-own)...)
	return name, requestOf(newest), requestOf(file), warnings, nil
}

// notApplied describes which fields of a file apply to no worker of a reservation that has
// executors. running is how many of its workers run and are not stopped by the file.
func notApplied(latest *berthv1.Reservation, newest, file model.Upsert, running int) (warnings []string) {
	differs := request.Differences(&file.Spec, &newest.Spec)
	taken := request.Take(&newest.Spec, &file.Spec)
	switch latest.GetState() {
	case berthv1.Reservation_ASSIGNING, berthv1.Reservation_ACTIVE:
	default:
		return nil
	}
	if file.Count > 0 && int(file.Count) < running && file.Count != newest.Count {
		why := "apply stops none"
		if file.Spec.Shrink == model.ShrinkHighest {
			why = fmt.Sprintf("targetSize is %d", file.Spec.TargetSize)
		}
		warnings = append(warnings, fmt.Sprintf("count does not apply: %d workers run, and %s", running, why))
	}
	for _, field := range (differs & request.Differences(&file.Spec, &taken)).Names() {
		warnings = append(warnings, field+" does not apply: its workers have executors")
	}
	if differs == 0 && len(warnings) == 0 {
		warnings = show.NotApplied(latest)
	}
	return warnings
}

func requestedIDs(list []*berthv1.WorkerID) []model.WorkerID {
	var ids []model.WorkerID
	for _, w := range list {
		ids = append(ids, model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()})
	}
	return ids
}

// upsertOf converts a reservation to the upsert that the registry would compare, with its
// defaults.
func upsertOf(r *berthv1.Reservation) (model.Upsert, error) {
	u, err := wire.UpsertOf(&berthv1.UpsertReservationRequest{Reservation: r})
	u = request.WithDefaults(u)
	u.Spec.Start, u.Spec.OnFailure = request.StartOf(u.Spec), request.OnFailureOf(u.Spec)
	return u, err
}

// requestOf converts an upsert to a document.
func requestOf(u model.Upsert) *berthv1.Reservation {
	r := wire.Spec(u.Key, u.Spec)
	if proto.Equal(r.Priority, &berthv1.Priority{}) {
		r.Priority = nil
	}
	r.Count, r.Workers = u.Count, wire.WorkerIDs(model.WorkerSetOf(u.Workers))
	return r
}

// existing returns an object without its output fields, or nil if it does not exist.
func existing[M proto.Message](m M, err error) (proto.Message, error) {
	if fault.Is(err, fault.ReasonNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	jobfile.Strip(m)
	return m, nil
}
