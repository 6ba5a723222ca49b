package sim

import (
	"fmt"
	"strings"

	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// dump writes the revisions of the store, for the analysis of a failure.
func (w *World) dump() {
	fmt.Fprintln(w.out, "the store's history:")
	for _, r := range w.store.History() {
		for _, c := range r.Changes {
			ref, ok := w.space.Parse(c.Key)
			if !ok || ref.Kind == model.KindChain {
				continue
			}
			if c.Deleted {
				fmt.Fprintf(w.out, "r%-5d %s deleted\n", r.Revision, strings.TrimPrefix(c.Key, w.space.Prefix()))
				continue
			}
			record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
			if err != nil {
				fmt.Fprintf(w.out, "r%-5d %s: %v\n", r.Revision, c.Key, err)
				continue
			}
			fmt.Fprintf(w.out, "r%-5d %s %s\n", r.Revision, strings.TrimPrefix(c.Key, w.space.Prefix()), summary(record))
		}
	}
}

// summary returns a record in a few words.
func summary(record model.Record) string {
	switch r := record.(type) {
	case *model.Reservation:
		text := fmt.Sprintf("%s %s workers %v place %d epoch %d", r.State, r.Reason, r.Workers.List(), r.Place, r.Epoch)
		text += " group " + r.Group()
		if !r.NotBefore.IsZero() {
			text += fmt.Sprintf(" not before %d", r.NotBefore.UnixMilli())
		}
		if r.Origin != 0 || r.Round > 0 {
			text += fmt.Sprintf(" %v of %s round %d failures %d for %s", r.Origin, r.Parent, r.Round, r.Failures, r.FailedFor)
		}
		if r.Spec.Hold || r.Spec.Constraints.Cells {
			text += fmt.Sprintf(" hold %v cells %v chosen %q bound %v", r.Spec.Hold, r.Spec.Constraints.Cells, r.Chosen,
				!r.BoundAt.IsZero())
		}
		return text
	case *model.Executor:
		return fmt.Sprintf("ordinal %d incarnation %d lost %v", r.Ordinal, r.Incarnation, r.Lost)
	case *model.Live:
		return fmt.Sprintf("incarnation %d", r.Incarnation)
	case *model.LeaseChunk:
		var b strings.Builder
		for _, p := range r.Workers {
			fmt.Fprintf(&b, " %s@%d", p.Worker, p.Ordinal)
		}
		return "workers" + b.String()
	case *model.Offer:
		var b strings.Builder
		for _, cell := range r.Cells {
			fmt.Fprintf(&b, " #%d=%s", cell.Ordinal, cell.State)
		}
		return fmt.Sprintf("number %d decided %v%s", r.Number, r.IsDecided(), b.String())
	case *model.TaskHeader:
		return fmt.Sprintf("complete %v stopping %v withdrawn %v %s ended %v", r.Complete, r.Stopping, r.Withdrawn, r.Reason,
			r.Ended)
	case *model.TaskChunk:
		var b strings.Builder
		for _, tw := range r.Workers {
			fmt.Fprintf(&b, " %s@%d=%s", tw.ID, tw.Ordinal, tw.State)
			if tw.Reason != "" {
				fmt.Fprintf(&b, "(%s)", tw.Reason)
			}
		}
		return "workers" + b.String()
	case *model.Leader:
		return r.Replica
	}
	return ""
}
