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

// The bounds of what is left alone, and of what is kept of each.
const (
	// maxPoison is how many requests and decisions are left alone at most. What panics
	// so often is the program, and not what it was given: a process that ends is seen.
	// Records do not count: no value in the store may end a process.
	maxPoison = 100

	maxContent, maxPanic, maxStack = 4 << 10, 1 << 10, 8 << 10
)

// Guard has a driver take a panic of its core as the end of a tenure. Without
// one it goes on, as a test wants it.
type Guard struct {
	Replica, Version string
	// Met is what this process met and has not stored, by id. A standby cannot.
	Met map[string]*model.Poison
}

// ErrAfresh ends a tenure because what is quarantined has changed: the core is
// built again from the view.
var ErrAfresh = errors.New("what is left alone has changed")

// Poisoned ends a tenure: the core panicked, and its memory is worth nothing.
type Poisoned struct {
	// Poison is what is to blame; nil when nobody knows, or when the service
	// cannot be right without it.
	Poison *model.Poison
	// Token is that of the request to blame, 0 for none.
	Token uint64
	Panic string
	Stack string
	// kept says that the leader has stored it.
	kept bool
}

func (p *Poisoned) Error() string {
	return fmt.Sprintf("the core panicked: %s", p.Panic)
}

// Guard has panics of the core end the tenure, from now on.
func (d *Driver[C]) Guard(g Guard) { d.aside.guard = &g }

// give steps the core. The error is a *Poisoned.
func (d *Driver[C]) give(event model.Event) (actions []model.Action, err error) {
	if d.steps != nil {
		d.steps()
	}
	if d.aside.guard == nil {
		return d.Core.Step(d.now(), event), nil
	}
	defer func() {
		if what := recover(); what != nil {
			err = d.blame(event, what, debug.Stack())
		}
	}()
	return d.Core.Step(d.now(), event), nil
}

// blame says what a panic came of: the record that the core was told of, else
// what it was deciding about, else the request that it was given.
func (d *Driver[C]) blame(event model.Event, what any, stack []byte) *Poisoned {
	g := d.aside.guard
	end := &Poisoned{Panic: clip(fmt.Sprint(what), maxPanic), Stack: clip(string(stack), maxStack)}
	p := &model.Poison{
		Service: d.service, Panic: end.Panic, Stack: end.Stack, At: d.now(), Replica: g.Replica, Version: g.Version,
	}
	holder, holds := any(d.Core).(model.Holder)
	changed, isChange := event.(model.Changed)
	input, isInput := event.(model.Input)
	switch {
	case isChange && holds && holder.CanMiss(changed.Ref):
		p.Kind, p.Key, p.Mod = model.PoisonRecord, d.space.Key(changed.Ref), changed.Mod
	case isChange:
		end.Panic += ": told of " + d.space.Key(changed.Ref) + ", without which the service would be wrong"
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
	if p.Kind != model.PoisonRecord && d.aside.decisions() >= maxPoison {
		panic(fmt.Sprintf("%s, and %d things are left alone for a panic already\n%s", end.Panic, maxPoison, end.Stack))
	}
	end.Poison = p
	return end
}

// decisions counts the requests and decisions that are left alone.
func (a *aside) decisions() int {
	n := 0
	for _, p := range a.known() {
		if p.Kind != model.PoisonRecord {
			n++
		}
	}
	return n
}

// refuses answers why a request is not to be taken; nil when it may be.
func (d *Driver[C]) refuses(request any) error {
	name, sum := fmt.Sprintf("%T", request), ""
	for _, p := range d.aside.known() {
		if p.Kind != model.PoisonRequest || p.Request != name {
			continue
		}
		if sum == "" {
			sum, _ = fingerprint(request)
		}
		if p.Fingerprint == sum {
			return poisonous(p)
		}
	}
	return nil
}

// poisonous is the answer to a request that made a core panic.
func poisonous(p *model.Poison) error {
	return fault.New(fault.Internal, fault.ReasonPoison, "this request made the %s panic, and was not applied: it is left alone (%s)", p.Service, p.ID)
}

// fingerprint names the content of a request, and shows as much of it as is
// kept: what it has in exported fields, as all requests have. What differs in
// each attempt at the same thing is left out, and so is what is secret: the
// arguments, environment and payload of a task are not shown.
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

// clip shortens a text, to whole characters.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
