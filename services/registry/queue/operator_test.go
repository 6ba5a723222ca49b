package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// This file has the transcript commands of operators and the commands that show the whole
// queue.

// configure reads the options of the command that creates a core. With readiness=signal,
// the new cluster has never been ready.
func (w *world) configure(t *testing.T, a args, config *Config) {
	if name := a.named["order"]; name != "" {
		order, err := scheduler.OrderNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		config.Scheduling.Order = order
	}
	for text := range strings.SplitSeq(a.named["defaults"], ",") {
		if name, value, ok := strings.Cut(text, ":"); ok {
			if config.DefaultAttributes == nil {
				config.DefaultAttributes = map[string]string{}
			}
			config.DefaultAttributes[name] = value
		}
	}
	config.Scheduling.MinDelay = a.duration(a.named["minDelay"])
	if a.named["readiness"] == "signal" {
		config.Readiness, config.ReadinessGrace = ReadyOnSignal, a.duration(a.named["grace"])
		delete(w.records, (&model.Ready{}).Ref())
	}
}

func (w *world) operatorCommand(name string, a args) (text string, ok bool) {
	switch name {
	case "mark-ready":
		return show(w.input(MarkReady{})), true
	case "flush":
		flush := request.Flush{Job: a.named["job"], Group: a.named["group"], RequestID: a.named["request"]}
		if flush.Group != "" && a.named["raw"] == "" {
			view, _ := w.core.Get(a.key(flush.Group))
			flush.Group = view.Reservation.Group()
		}
		return show(w.input(flush)), true
	case "standing":
		standing, ok := w.core.Standing(a.key(a.bare[0]))
		if !ok {
			return "not there\n", true
		}
		return w.showStanding(standing), true
	case "findings":
		return w.showFindings(), true
	case "counters":
		return w.showCounters(), true
	}
	return "", false
}

func showReady(r *model.Ready) string {
	if r.Since.IsZero() {
		return "not ready, begun " + r.Begun.Format(time.TimeOnly)
	}
	return fmt.Sprintf("ready since %s by %s", r.Since.Format(time.TimeOnly), r.By)
}

func (w *world) showStanding(s Standing) string {
	text := showView(s.View)
	if s.Group == "" {
		return text
	}
	text += fmt.Sprintf("  one of %d, head %s for %v\n", s.Queued, s.Head, w.now.Sub(s.HeadSince))
	if !s.Tried.IsZero() {
		text += fmt.Sprintf("  tried %v ago: %s\n", w.now.Sub(s.Tried), s.Message)
	}
	return text
}

func (w *world) showFindings() string {
	var b strings.Builder
	for _, f := range w.core.Findings(w.now) {
		fmt.Fprintf(&b, "%s %s for %v\n  %s\n  %s\n", f.Kind, f.Object, w.now.Sub(f.Since), f.Message, f.Action)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// showCounters prints the counters that are not zero.
func (w *world) showCounters() string {
	s := w.core.Stats()
	var b strings.Builder
	line := func(name string, counts map[string]uint64, order ...string) {
		b.WriteString(name + ":")
		for _, what := range order {
			if counts[what] > 0 {
				fmt.Fprintf(&b, " %s=%d", what, counts[what])
			}
		}
		b.WriteByte('\n')
	}
	counts, order := map[string]uint64{}, []string{}
	add := func(what string, n uint64) {
		counts[what] = n
		order = append(order, what)
	}
	flush := func(name string) {
		line(name, counts, order...)
		counts, order = map[string]uint64{}, nil
	}
	for cause, n := range s.WakeUps {
		add(scheduler.WakeCause(cause).String(), n)
	}
	flush(fmt.Sprintf("%d cycles, for", s.Cycles))
	for _, result := range []model.Result{model.Granted, model.NoFit, model.Stale, model.Behind} {
		add(result.String(), s.Candidates[result])
	}
	flush("candidates")
	for change := model.Created; change <= model.ChangeReplaced; change++ {
		add(change.String(), s.Upserts[change])
	}
	flush("upserts")
	for kind, n := range s.Events {
		add(eventNames[model.EventKind(kind)], n)
	}
	flush("events")
	add("taken", s.Taken)
	add("refused", s.Refused)
	flush("dispatches")
	if s.ExpiredQueued+s.ExpiredActive > 0 {
		add(model.Queued.String(), s.ExpiredQueued)
		add(model.Active.String(), s.ExpiredActive)
		flush("expired")
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Restarts)) {
		add(string(reason), s.Restarts[reason])
	}
	if len(s.Restarts) > 0 {
		flush("restarts")
	}
	fmt.Fprintf(&b, "time in queue: %d, together %v\n", s.TimeInQueue.Count(), s.TimeInQueue.Sum)
	slices.SortFunc(s.Groups, func(a, b GroupStats) int { return strings.Compare(a.ID, b.ID) })
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "a queue of %d with %d workers, head for %v\n", g.Reservations, g.Workers, w.now.Sub(g.HeadSince))
	}
	return b.String()
}
