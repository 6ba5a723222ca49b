package replica

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

const (
	// maxFindings is the maximum number of findings of one kind that a service lists,
	// because one message contains all findings of a service.
	maxFindings = 200
	// maxFindingText is the maximum length of each text of a finding, in bytes.
	maxFindingText = 2 << 10
)

// Found is a finding of a service's core.
type Found = struct {
	Kind, Object    string
	Since           time.Time
	Message, Action string
}

// Findings returns the findings of a service: first the findings of its loop, then the
// findings of its core. It lists at most maxFindings findings of each kind of the core.
// If there are more, a summary finding of that kind counts the others. The loop limits
// the number of its own findings.
func Findings[F ~Found](status loop.Status, service string, found []F) *berthv1.ListFindingsAnswer {
	answer := &berthv1.ListFindingsAnswer{Findings: status.Findings(service)}
	add := func(f Found) {
		answer.Findings = append(answer.Findings, &berthv1.Finding{
			Kind: f.Kind, Object: f.Object, Since: wire.Timestamp(f.Since), Message: f.Message, Action: f.Action,
			Service: service,
		})
	}
	count := map[string]int{}
	since := map[string]time.Time{} // of the oldest finding that is not listed
	for _, f := range found {
		f := Found(f)
		if count[f.Kind]++; count[f.Kind] <= maxFindings {
			add(f)
		} else if first, ok := since[f.Kind]; !ok || f.Since.Before(first) {
			since[f.Kind] = f.Since
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(since)) {
		add(Found{
			Kind: kind, Object: model.OtherFindings, Since: since[kind],
			Message: fmt.Sprintf("%d more of this kind", count[kind]-maxFindings),
			Action:  "Berth handles these findings like the listed ones, and lists them once listed findings have ended. The metric findings of the " + service + " counts all of them.",
		})
	}
	for _, f := range answer.Findings {
		f.Object, f.Message, f.Action = clip(f.GetObject()), clip(f.GetMessage()), clip(f.GetAction())
	}
	return answer
}

// clip shortens a text of a finding to maxFindingText.
func clip(text string) string {
	if len(text) <= maxFindingText {
		return text
	}
	return strings.ToValidUTF8(text[:maxFindingText], "") + "…"
}
