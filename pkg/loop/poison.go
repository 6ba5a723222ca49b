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

// The bounds of poison.
const (
	// maxPoison bounds the quarantined requests and decisions. If more of them panic,
	// the program is broken and not its input, and a process that exits is noticed.
	// Records do not count: no value in the store may end a process.
	maxPoison = 100

	maxContent, maxPanic, maxStack = 4 << 10, 1 << 10, 8 << 10
)

// Guard makes a panic of the core the end of a tenure. Without a guard the panic
// continues, as tests want it.
type Guard struct {
	Replica, Version string
	// Unstored holds, by ID, the poison that this process met and could not store, for
	// example as a standby.
	Unstored map[string]*model.Poison
}

// ErrQuarantineChanged ends a tenure: the core must be built again from the view.
var ErrQuarantineChanged = errors.New("the quarantine has changed")

// Poisoned ends a tenure: the core panicked, so its state is invalid.
type Poisoned struct {
	// Poison is the cause. It is nil if the cause is unknown or the service needs the
	// record that caused it.
	Poison *model.Poison
	// Token is the token of the request to blame, 0 for none.
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

// give steps the core. The error is a *Poisoned.
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

// blame attributes a panic to the changed record that the core received, or else to the
// object of its decision, or else to the request that it received.
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

// poisoned returns the error for a request that is quarantined; nil for any other.
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

// errPoison is the answer to a request that made a core panic.
func errPoison(p *model.Poison) error {
	return fault.New(fault.Internal, fault.ReasonPoison,
		"the request made the %s panic, was not applied and is quarantined as %s: see the findings", p.Service, p.ID)
}

// fingerprint identifies the content of a request, and returns the part of it that is
// stored. Requests have exported fields only. Fields that differ in each attempt are left
// out, and so are secrets: the arguments, environment and payload of a task.
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

// clip shortens a text to at most that many bytes, without splitting a character.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
