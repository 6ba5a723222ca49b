package loop

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The limits of poison.
const (
	// maxPoison is the maximum number of quarantined requests and decisions. If more of them
	// make the core panic, the fault is in the program and not in its input. Then the
	// process exits, so that operators notice the fault. Records do not count, because no
	// value in the store may end a process.
	maxPoison = 100

	maxContent, maxPanic, maxStack = 4 << 10, 1 << 10, 8 << 10
)

// Guard configures how a driver handles a panic of the core: the panic ends the tenure.
// Without a Guard the panic continues, which tests need.
type Guard struct {
	Replica, Version string
	// Unstored has the poison that this process found and could not store, for example as a
	// standby, by ID.
	Unstored map[string]*model.Poison
}

// ErrQuarantineChanged ends a tenure: the core must be built again from the view.
var ErrQuarantineChanged = errors.New("the quarantine has changed")

// Poisoned ends a tenure: the core panicked, so its state is invalid.
type Poisoned struct {
	// Poison is the cause. It is nil if the cause is unknown, or if the cause is a record
	// that the service needs.
	Poison *model.Poison
	// Token is the token of the request that caused the panic, or 0.
	Token uint64
	Panic string
	Stack string
	// stored is set once the leader has stored Poison.
	stored bool
}

func (p *Poisoned) Error() string {
	return fmt.Sprintf("the core panicked: %s", p.Panic)
}

// Guard makes panics of the core end the tenure from now on.
func (d *Driver[C]) Guard(g Guard) { d.quarantine.guard = &g }

// give passes an event to the core. If the core panics, the error is a *Poisoned.
func (d *Driver[C]) give(event model.Event) (actions []model.Action, err error) {
	d.progress()
	defer func() {
		if d.quarantine.guard == nil {
			return
		}
		if what := recover(); what != nil {
			err = d.blame(event, what, debug.Stack())
		}
	}()
	return d.Core.Step(d.now(), event), nil
}

// blame determines the cause of a panic. If the event is a change, the cause is the
// changed record. Otherwise the cause is the record about which the core was deciding. If
// the core names no such record, the cause is the request in the event.
func (d *Driver[C]) blame(event model.Event, what any, stack []byte) *Poisoned {
	g := d.quarantine.guard
	end := &Poisoned{Panic: clip(fmt.Sprint(what), maxPanic), Stack: clip(string(stack), maxStack)}
	p := &model.Poison{
		Service: d.service, Panic: end.Panic, Stack: end.Stack, At: d.now(), Replica: g.Replica, Version: g.Version,
	}
	holder, holds := any(d.Core).(model.QuarantineCore)
	changed, isChange := event.(model.Changed)
	input, isInput := event.(model.Input)
	switch {
	case isChange && holds && holder.CanMiss(changed.Ref):
		p.Kind, p.Key, p.Mod = model.PoisonRecord, d.space.Key(changed.Ref), changed.Mod
	case isChange:
		end.Panic += ": on a change of " + d.space.Key(changed.Ref) + ", which the service needs"
		return end
	case holds && holder.Subject() != model.Ref{}:
		p.Kind, p.Key = model.PoisonWork, d.space.Key(holder.Subject())
	case isInput:
		p.Kind, end.Token = model.PoisonRequest, input.Token
		p.Request = fmt.Sprintf("%T", input.Request)
		p.Fingerprint, p.Content = fingerprint(input.Request)
	default:
		return end
	}
	p.ID = digest(fmt.Sprint(p.Kind, p.Key, p.Mod, p.Request, p.Fingerprint))[:16]
	if p.Kind != model.PoisonRecord && d.quarantine.decisions() >= maxPoison {
		panic(fmt.Sprintf("%s, and %d requests and decisions are quarantined already\n%s", end.Panic, maxPoison, end.Stack))
	}
	end.Poison = p
	return end
}

// decisions counts the quarantined requests and decisions.
func (q *quarantine) decisions() int {
	n := 0
	for _, p := range q.poison() {
		if p.Kind != model.PoisonRecord {
			n++
		}
	}
	return n
}

// poisoned returns the error for a quarantined request, or nil if the request is not
// quarantined.
func (d *Driver[C]) poisoned(request any) error {
	name, sum := fmt.Sprintf("%T", request), ""
	for _, p := range d.quarantine.poison() {
		if p.Kind != model.PoisonRequest || p.Request != name {
			continue
		}
		if sum == "" {
			sum, _ = fingerprint(request)
		}
		if p.Fingerprint == sum {
			return errPoison(p)
		}
	}
	return nil
}

// errPoison returns the error for a request that made a core panic.
func errPoison(p *model.Poison) error {
	return fault.New(fault.Internal, fault.ReasonPoison,
		"the request made the %s panic, was not applied and is quarantined as %s: see the findings", p.Service, p.ID)
}

// fingerprint returns a checksum that identifies the content of a request, and the
// content to store. Requests have only exported fields. The checksum does not cover
// fields that differ in each attempt. The content also lacks secrets: the arguments, the
// environment and the payload of a task.
func fingerprint(request any) (sum, content string) {
	plain := reflect.ValueOf(request)
	if plain.Kind() == reflect.Struct {
		clone := reflect.New(plain.Type()).Elem()
		clone.Set(plain)
		for _, name := range []string{"RequestID", "Trace", "Nonce", "SecretHash"} {
			if field := clone.FieldByName(name); field.IsValid() {
				field.SetZero()
			}
		}
		plain = clone
	}
	sum = digest(textOf(plain))
	if plain.CanSet() {
		if spec := plain.FieldByName("Spec"); spec.Kind() == reflect.Struct && spec.FieldByName("Task").IsValid() {
			for _, name := range []string{"Args", "Env", "Payload"} {
				spec.FieldByName("Task").FieldByName(name).SetZero()
			}
		}
	}
	return sum, clip(textOf(plain), maxContent)
}

func textOf(request reflect.Value) string {
	text, err := json.Marshal(request.Interface())
	if err != nil {
		text = fmt.Appendf(nil, "%+v", request.Interface())
	}
	return string(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// clip shortens a text to at most most bytes, without splitting a character.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
