package play

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// events shows the stream of a job up to given events, grouped by reservation. It does
// not show how the events of different reservations and workers interleave, or how many
// workers one event has, because neither is deterministic.
func (p *player) events(w *words) (string, error) {
	job := w.next("job")
	list, err := p.follow(job, w)
	if err != nil {
		return "", err
	}
	return versionsText(list), nil
}

// order shows the events of one kind in the order of the stream.
func (p *player) order(w *words) (string, error) {
	kind := w.next("kind")
	job := w.next("job")
	list, err := p.follow(job, w)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(e *berthv1.Event) bool { return e.GetKind().String() != kind })
	return lines(list, func(e *berthv1.Event) string { return keyText(e.GetJob(), e.GetStage(), e.GetReservation()) }), nil
}

// until is a condition for the end of a stream: the n-th event of a kind.
type until struct {
	stage, name, kind string
	missing           int
}

// follow reads a stream `until STAGE KIND STAGE/NAME KIND:N ...`, that is, until each of
// these events has occurred. N is a number of workers. The ASSIGNED events of running
// workers may come later, so follow also waits for them.
func (p *player) follow(job string, w *words) ([]*berthv1.Event, error) {
	w.expect("until")
	var wanted []*until
	for len(w.bare) > 0 || len(wanted) == 0 {
		u := &until{name: model.MainName, missing: 1}
		stage, name, named := strings.Cut(w.next("stage"), "/")
		if u.stage = stage; named {
			u.name = name
		}
		kind, count, counted := strings.Cut(w.next("kind"), ":")
		if _, ok := berthv1.Event_Kind_value[kind]; !ok {
			return nil, fmt.Errorf("%q is not an event kind", kind)
		}
		if u.kind = kind; counted {
			var err error
			if u.missing, err = strconv.Atoi(count); err != nil {
				return nil, err
			}
		}
		wanted = append(wanted, u)
	}
	if err := w.problem(); err != nil {
		return nil, err
	}
	var list []*berthv1.Event
	assigned := map[string]bool{} // whether running versions have an ASSIGNED event, by uid
	err := p.Follow(job, func(e *berthv1.Event) bool {
		list = append(list, e)
		switch e.GetKind() {
		case berthv1.Event_RESERVATION_ASSIGNED:
			assigned[e.GetUid()] = true
		case berthv1.Event_WORKER_RUNNING:
			if _, known := assigned[e.GetUid()]; !known {
				assigned[e.GetUid()] = false
			}
		}
		for _, u := range wanted {
			u.count(e)
		}
		return !slices.ContainsFunc(wanted, func(u *until) bool { return u.missing > 0 }) &&
			!slices.Contains(slices.Collect(maps.Values(assigned)), false)
	})
	if err != nil {
		return nil, fmt.Errorf("%w; so far:\n%s", err, versionsText(list))
	}
	return list, nil
}

func (u *until) count(e *berthv1.Event) {
	if e.GetStage() != u.stage || e.GetReservation() != u.name || e.GetKind().String() != u.kind {
		return
	}
	if !strings.HasPrefix(u.kind, "RESERVATION_") {
		u.missing -= int(e.GetCount())
	} else {
		u.missing--
	}
}

// versionEvents has the events of one version of a reservation and of its workers, and the events
// that disabled executors with its workers.
type versionEvents struct {
	title    string
	words    []string
	workers  map[model.WorkerID][]string
	disabled []string
}

// versionsText shows events version by version, in the order of their first event.
func versionsText(list []*berthv1.Event) string {
	var order []*versionEvents
	byUID := map[string]*versionEvents{}
	versions := map[string]int{}
	for _, e := range list {
		s := byUID[e.GetUid()]
		if s == nil {
			title := keyText(e.GetJob(), e.GetStage(), e.GetReservation())
			if versions[title]++; versions[title] > 1 {
				title += "#" + strconv.Itoa(versions[title])
			}
			s = &versionEvents{title: title, workers: map[model.WorkerID][]string{}}
			byUID[e.GetUid()], order = s, append(order, s)
		}
		s.add(e)
	}
	var b strings.Builder
	for _, s := range order {
		b.WriteString(s.String())
	}
	return b.String()
}

// passing has the kinds of events for states that a worker may skip or leave before an
// event is emitted.
var passing = []berthv1.Event_Kind{berthv1.Event_WORKER_ASSIGNED, berthv1.Event_WORKER_STARTED,
	berthv1.Event_WORKER_EVICTING}

func (s *versionEvents) add(e *berthv1.Event) {
	kind := e.GetKind().String()
	if object, rest, _ := strings.Cut(kind, "_"); object == "RESERVATION" {
		s.words = append(s.words, rest+because(e.GetReason(), rest))
		return
	}
	if slices.Contains(passing, e.GetKind()) {
		return
	}
	if e.GetKind() == berthv1.Event_EXECUTOR_DISABLED {
		// The order of these events relative to other events of workers is not
		// deterministic.
		for _, w := range e.GetWorkers() {
			s.disabled = append(s.disabled, fmt.Sprintf("  %d.%d: %s%s of %s\n", w.GetIndex(), w.GetNumber(), kind,
				because(e.GetReason(), kind), w.GetExecutor()))
		}
		return
	}
	for _, w := range e.GetWorkers() {
		workerID := model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}
		word := strings.TrimPrefix(kind, "WORKER_")
		reason := w.GetReason()
		if reason == "" {
			reason = e.GetReason()
		}
		word += because(reason, word)
		if w.ExitCode != nil && e.GetKind() != berthv1.Event_WORKER_EVICTED {
			word += fmt.Sprintf(" exit=%d", w.GetExitCode())
		}
		s.workers[workerID] = append(s.workers[workerID], word)
	}
}

func because(reason, word string) string {
	if reason == "" || reason == word {
		return ""
	}
	return " (" + reason + ")"
}

func (s *versionEvents) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", s.title, strings.Join(s.words, ", "))
	byText := map[string][]model.WorkerID{}
	for workerID, words := range s.workers {
		text := strings.Join(words, ", ")
		byText[text] = append(byText[text], workerID)
	}
	var rows []string
	for text, workers := range byText {
		rows = append(rows, fmt.Sprintf("  %s: %s\n", runsText(workers), text))
	}
	rows = append(rows, s.disabled...)
	slices.Sort(rows)
	b.WriteString(strings.Join(rows, ""))
	return b.String()
}
