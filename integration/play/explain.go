package play

import (
	"fmt"
	"slices"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
)

// explain shows why a reservation is queued and how many of its workers would fit.
func (p *player) explain(w *words) (string, error) {
	key := w.key()
	e, refused := call(p, p.explanations.ExplainReservation,
		&berthv1.ExplainReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.Name})
	if refused != nil {
		return refusal(refused), nil
	}
	return explanationText(e), nil
}

func explanationText(e *berthv1.Explanation) string {
	r, head := e.GetReservation(), e.GetHead()
	name := keyText(r.GetJob(), r.GetStage(), r.GetName())
	if e.GetPosition() == 0 {
		return strings.TrimSuffix(fmt.Sprintf("%s is not pending: it is %s %s", name, r.GetState(), e.GetReason()), " ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %d of %d", name, e.GetPosition(), e.GetQueued())
	if e.GetPosition() > 1 {
		fmt.Fprintf(&b, ", behind %s", keyText(head.GetJob(), head.GetStage(), head.GetName()))
	}
	fmt.Fprintf(&b, ": %s\n", e.GetReason())
	if e.GetExecutorRevision() == 0 {
		return b.String() + "the number of workers that fit is unknown"
	}
	fmt.Fprintf(&b, "needed %d, fitting %d, missing %d\n", e.GetNeeded(), e.GetFitting(), e.GetMissing())
	for _, c := range e.GetChecks() {
		byDefault := ""
		if c.GetByDefault() {
			byDefault = " by default"
		}
		fmt.Fprintf(&b, "  %d fail %s: wanted %s%s, found %s\n", c.GetCount(), c.GetCheck(), c.GetWant(), byDefault,
			c.GetHave())
	}
	return b.String()
}

// findings shows all findings. If kinds are given, it waits until there is a finding of
// each kind and shows these findings. With `no` before the kinds, it waits until there is
// no finding of these kinds.
func (p *player) findings(w *words) (string, error) {
	none := len(w.bare) > 0 && w.bare[0] == "no"
	if none {
		w.expect("no")
	}
	wanted := w.bare
	w.bare = nil
	var last string
	err := p.Until(func() bool {
		answer, refused := call(p, p.findingsClient.ListFindings, &berthv1.ListFindingsRequest{})
		if refused != nil {
			last = refusal(refused)
			return len(wanted) == 0
		}
		found := map[string]bool{}
		list := slices.DeleteFunc(slices.Clone(answer.GetFindings()), func(f *berthv1.Finding) bool {
			found[f.GetKind()] = true
			return len(wanted) > 0 && !slices.Contains(wanted, f.GetKind())
		})
		last = sorted(lines(list, findingText))
		return !slices.ContainsFunc(wanted, func(kind string) bool { return found[kind] == none })
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, last), nil
	}
	return last, nil
}

func findingText(f *berthv1.Finding) string {
	text := fmt.Sprintf("%s %s by %s: %s", f.GetKind(), f.GetObject(), f.GetService(), f.GetAction())
	if f.GetSince() == nil {
		text += " (since unknown)"
	}
	return text
}
