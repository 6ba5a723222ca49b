package play

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// words has the words of a command: bare words, then NAME=VALUE words. A word that the
// command does not read is a mistake in the file.
type words struct {
	bare  []string
	named map[string]string
	read  map[string]bool
	first error
}

func parse(line string) (name string, w *words) {
	all := strings.Fields(line)
	w = &words{named: map[string]string{}, read: map[string]bool{}}
	for _, word := range all[1:] {
		if name, value, ok := strings.Cut(word, "="); ok {
			w.named[name] = value
		} else {
			w.bare = append(w.bare, word)
		}
	}
	return all[0], w
}

// problem returns an error about a mistake in the words, or nil.
func (w *words) problem() error {
	if w.first != nil {
		return w.first
	}
	for _, name := range slices.Sorted(maps.Keys(w.named)) {
		if !w.read[name] {
			return fmt.Errorf("unknown argument %s=", name)
		}
	}
	if len(w.bare) > 0 {
		return fmt.Errorf("unexpected argument %q", w.bare[0])
	}
	return nil
}

func (w *words) wrong(format string, args ...any) {
	if w.first == nil {
		w.first = fmt.Errorf(format, args...)
	}
}

// next returns the next bare word.
func (w *words) next(what string) string {
	if len(w.bare) == 0 {
		w.wrong("%s is missing", what)
		return ""
	}
	word := w.bare[0]
	w.bare = w.bare[1:]
	return word
}

// rest returns all further bare words.
func (w *words) rest() []string {
	rest := w.bare
	w.bare = nil
	return rest
}

// expect reads a bare word that must equal word.
func (w *words) expect(word string) {
	if got := w.next(word); got != word {
		w.wrong("got %q, want %q", got, word)
	}
}

func (w *words) has(name string) bool { _, ok := w.named[name]; return ok }

func (w *words) text(name string) string {
	w.read[name] = true
	return w.named[name]
}

// equations returns all NAME=VALUE words.
func (w *words) equations() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(w.named)) {
		list = append(list, name+"="+w.text(name))
	}
	return list
}

// hasAll reports whether a line contains all given words.
func hasAll(line string, words []string) bool {
	has := strings.Fields(line)
	return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(has, word) })
}

func (w *words) list(name string) []string {
	text := w.text(name)
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func (w *words) number(name string) int64 {
	text := w.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.wrong("%s=%s is not a number", name, text)
	}
	return n
}

// grace returns the grace of a cancel; nil without one.
func (w *words) grace() *durationpb.Duration {
	if !w.has("grace") {
		return nil
	}
	return durationpb.New(w.duration(w.text("grace")))
}

func (w *words) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		w.wrong("%v", err)
	}
	return d
}

// The names of resources and attributes.
var (
	resourceNames  = []string{"slots", "cpu", "gpu", "fpga", "memory", "room", "nics"}
	attributeNames = []string{"zone", "rack", "disk"}
)

func (w *words) resources() map[string]int64 {
	m := map[string]int64{}
	for _, name := range resourceNames {
		if w.has(name) {
			m[name] = w.number(name)
		}
	}
	return m
}

func (w *words) attributes() map[string]string {
	m := map[string]string{}
	for _, name := range attributeNames {
		if w.has(name) {
			m[name] = w.text(name)
		}
	}
	return m
}

// shares reads the reserved shares of a host: web:slots=1,cpu=1000;db:slots=1.
func (w *words) shares() map[string]resource.Vector {
	shares := map[string]resource.Vector{}
	for text := range strings.FieldsFuncSeq(w.text("reserved"), func(r rune) bool { return r == ';' }) {
		role, amounts, _ := strings.Cut(text, ":")
		shares[role] = resource.Vector{}
		for text := range strings.SplitSeq(amounts, ",") {
			name, amount, _ := strings.Cut(text, "=")
			n, err := strconv.ParseInt(amount, 10, 64)
			if err != nil {
				w.wrong("reserved=%s:%s: must be ROLE:NAME=AMOUNT", role, text)
			}
			shares[role][name] = n
		}
	}
	return shares
}

// key reads job/stage or job/stage/name.
func (w *words) key() model.Key {
	parts := strings.Split(w.next("job/stage"), "/")
	if len(parts) == 2 {
		parts = append(parts, model.MainName)
	}
	if len(parts) != 3 {
		w.wrong("%s: must be job/stage or job/stage/name", strings.Join(parts, "/"))
		return model.Key{}
	}
	return model.Key{Job: parts[0], Stage: parts[1], Name: parts[2]}
}

// workers reads worker IDs in the form 0-7.1,9.2: indexes, or ranges of indexes, with a
// number.
func (w *words) workers(text string) []*berthv1.WorkerID {
	var workers []*berthv1.WorkerID
	for part := range strings.SplitSeq(text, ",") {
		indexes, numberText, numbered := strings.Cut(part, ".")
		if !numbered {
			numberText = "0" // a request may leave the number to the registry
		}
		from, to, isRange := strings.Cut(indexes, "-")
		if !isRange {
			to = from
		}
		number, err := strconv.ParseInt(numberText, 10, 32)
		first, errFirst := strconv.ParseInt(from, 10, 32)
		last, errLast := strconv.ParseInt(to, 10, 32)
		if err != nil || errFirst != nil || errLast != nil {
			w.wrong("%q: must be FIRST-LAST or FIRST-LAST.NUMBER", part)
			return nil
		}
		for i := first; i <= last; i++ {
			workers = append(workers, &berthv1.WorkerID{Index: int32(i), Number: int32(number)})
		}
	}
	return workers
}

// enum reads the name of an enum value. An empty name means the zero value.
func enum[E ~int32](w *words, name string, values map[string]int32) E {
	text := w.text(name)
	value, ok := values[text]
	if text != "" && !ok {
		w.wrong("%s=%s is unknown", name, text)
	}
	return E(value)
}

// reservation reads a request. Its times count from now.
func (w *words) reservation(now time.Time) *berthv1.Reservation {
	key := w.key()
	r := &berthv1.Reservation{
		Job: key.Job, Stage: key.Stage, Name: key.Name,
		Count: int32(w.number("count")), TargetSize: int32(w.number("target")),
		Constraints: &berthv1.Constraints{
			Resources: w.resources(), Attributes: w.attributes(), Sku: w.text("sku"), Role: w.text("role"),
			Pools: w.list("pools"), Avoid: w.list("avoid"), SameShape: w.text("sameShape") == "yes",
			Pack: w.text("pack") == "yes",
		},
		Priority: &berthv1.Priority{Class: enum[berthv1.PriorityClass](w, "class", berthv1.PriorityClass_value),
			Tier: int32(w.number("tier"))},
		Task:  task(w.text("command"), w.text("stubborn") == "yes"),
		Batch: enum[berthv1.Batch](w, "batch", berthv1.Batch_value),
		Start: enum[berthv1.Start](w, "start", berthv1.Start_value),

		OnAssignmentFailure: enum[berthv1.OnAssignmentFailure](w, "onFailure", berthv1.OnAssignmentFailure_value),
	}
	if w.has("workers") {
		r.Workers = w.workers(w.text("workers"))
	}
	if w.has("spread") {
		by, most, _ := strings.Cut(w.text("spread"), ":")
		limit, err := strconv.ParseInt(most, 10, 32)
		if err != nil {
			w.wrong("spread=%s:%s: must be BY:MAX", by, most)
		}
		r.Constraints.Spread = &berthv1.Spread{By: by, Max: int32(limit)}
	}
	if w.has("order") {
		order := w.number("order")
		r.Priority.Order = &order
	}
	if w.has("attempts") {
		attempts := int32(w.number("attempts"))
		r.MaxAttempts = &attempts
	}
	if w.has("grace") {
		r.Task.StopGrace = durationpb.New(w.duration(w.text("grace")))
	}
	if w.has("stopSignal") {
		r.Task.StopSignal = proto.String(w.text("stopSignal"))
	}
	if w.has("timeout") {
		r.QueueTimeout = durationpb.New(w.duration(w.text("timeout")))
	}
	if w.has("label") {
		r.Labels = map[string]string{"label": w.text("label")}
	}
	if name, value, has := strings.Cut(w.text("env"), "="); has {
		r.Task.Env = map[string]string{name: value}
	}
	w.life(r, now)
	return r
}

// numbers reads a list of numbers, separated by commas.
func (w *words) numbers(name string) (list []int32) {
	for _, text := range w.list(name) {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			w.wrong("%s=%s: %v", name, text, err)
		}
		list = append(list, int32(n))
	}
	return list
}

// life reads when a reservation and its workers begin, end and are restarted, and which
// volumes they have.
func (w *words) life(r *berthv1.Reservation, now time.Time) {
	if w.has("volume") {
		r.Volume = &berthv1.VolumeRequest{Resource: w.text("volume")}
		if w.has("volumeLoss") {
			r.Volume.OnLoss = new(w.text("volumeLoss"))
		}
		if w.has("keep") {
			r.Volume.KeepFor = durationpb.New(w.duration(w.text("keep")))
		}
	}
	if w.has("hold") {
		r.Hold = berthv1.Hold_HOLD.Enum()
		if text := w.text("hold"); text != "default" {
			r.HoldTimeout = durationpb.New(w.duration(text))
		}
	}
	if w.has("expire") {
		r.ExpireAt = timestamppb.New(now.Add(w.duration(w.text("expire"))))
	}
	if w.has("notBefore") {
		r.NotBefore = timestamppb.New(now.Add(w.duration(w.text("notBefore"))))
	}
	if w.has("lifetime") {
		lasts, from, _ := strings.Cut(w.text("lifetime"), ":")
		r.Lifetime = &berthv1.Lifetime{For: durationpb.New(w.duration(lasts)), From: from}
	}
	if w.has("restart") {
		r.Restart = new(w.text("restart"))
	}
	if w.has("onLoss") {
		r.OnWorkerLoss = new(w.text("onLoss"))
	}
	if w.has("requeue") {
		r.Requeue = new(w.text("requeue"))
	}
	if w.has("onWorkerFailure") {
		r.OnWorkerFailure = new(w.text("onWorkerFailure"))
	}
	if w.has("shrink") {
		r.Shrink = new(w.text("shrink"))
	}
	r.CompletesWith = w.numbers("completesWith")
	if w.has("retry") || w.has("fail") {
		r.RestartExitCodes = &berthv1.RestartExitCodes{Retry: w.numbers("retry"), Fail: w.numbers("fail")}
	}
	if w.has("restarts") {
		r.MaxRestarts = new(int32(w.number("restarts")))
	}
	if w.has("startTimeout") {
		r.Task.StartTimeout = durationpb.New(w.duration(w.text("startTimeout")))
	}
	if w.has("readiness") {
		r.Task.Readiness = enum[berthv1.Readiness](w, "readiness", berthv1.Readiness_value).Enum()
	}
}
