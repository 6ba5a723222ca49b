package inventory

import (
	"fmt"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// The bounds of a registration.
const (
	maxID        = 253
	maxName      = 128
	maxText      = 256
	maxResources = 64
)

// check refuses a registration that is not well formed, naming every field
// that is wrong.
func (r Register) check() error {
	var bad violations
	bad.name("id", r.ID, maxID)
	if r.Address == "" {
		bad.add(fault.ReasonRequired, "address", "must be given")
	}
	bad.text("address", r.Address)
	if r.SKU != "" {
		bad.name("sku", r.SKU, maxName)
	}
	bad.text("host", r.Host)
	if r.Nonce == "" {
		bad.add(fault.ReasonRequired, "nonce", "must be given")
	}
	bad.text("nonce", r.Nonce)
	bad.text("secretHash", r.SecretHash)
	if r.Generation < 0 {
		bad.add(fault.ReasonInvalid, "generation", "must not be negative, is %d", r.Generation)
	}
	bad.attributes("attributes", r.Attributes)
	bad.resources(r.Resources)
	bad.reserved(r.Reserved, r.Resources.WithSlots())
	return bad.err()
}

// violations gathers what is wrong with a request.
type violations struct {
	reason fault.Reason
	fields []fault.Field
}

func (v *violations) add(reason fault.Reason, field, format string, args ...any) {
	if v.reason == "" {
		v.reason = reason
	}
	v.fields = append(v.fields, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// err is one error with the reason of the first violation.
func (v *violations) err() error {
	if len(v.fields) == 0 {
		return nil
	}
	err := fault.BadField(v.reason, v.fields[0].Name, "%s", v.fields[0].Problem)
	err.Fields = v.fields
	return err
}

func (v *violations) name(field, name string, longest int) {
	switch {
	case name == "":
		v.add(fault.ReasonRequired, field, "must be given")
	case len(name) > longest:
		v.add(fault.ReasonTooLarge, field, "at most %d characters, are %d", longest, len(name))
	case !model.WellNamed(name):
		v.add(fault.ReasonBadName, field, "only letters, digits, '.', '_' and '-', the first a letter or digit")
	}
}

func (v *violations) text(field, text string) {
	if len(text) > maxText {
		v.add(fault.ReasonTooLarge, field, "at most %d bytes, are %d", maxText, len(text))
	}
}

func (v *violations) resources(resources resource.Vector) {
	if len(resources) > maxResources {
		v.add(fault.ReasonTooLarge, "resources", "at most %d, are %d", maxResources, len(resources))
	}
	for _, name := range resources.Names() {
		field := "resources." + name
		v.name(field, name, maxName)
		if amount := resources[name]; amount < 0 {
			v.add(fault.ReasonInvalid, field, "must not be negative, is %d", amount)
		}
	}
}

func (v *violations) attributes(prefix string, attributes map[string]string) {
	if len(attributes) > model.MaxAttributes {
		v.add(fault.ReasonTooLarge, prefix, "at most %d, are %d", model.MaxAttributes, len(attributes))
	}
	folded := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		field := prefix + "." + name
		v.name(field, name, maxName)
		v.text(field, attributes[name])
		if other, ok := folded[constraint.Fold(name)]; ok {
			v.add(fault.ReasonDuplicate, field, "is the same as %q but for case", other)
		}
		folded[constraint.Fold(name)] = name
	}
}

// reserved checks the shares set aside of a capacity.
func (v *violations) reserved(shares map[string]resource.Vector, capacity resource.Vector) {
	if len(shares) > model.MaxAttributes {
		v.add(fault.ReasonTooLarge, "reserved", "at most %d, are %d", model.MaxAttributes, len(shares))
	}
	folded := map[string]string{}
	left := capacity.Clone()
	for _, role := range slices.Sorted(maps.Keys(shares)) {
		field := "reserved." + role
		v.name(field, role, maxName)
		if other, ok := folded[constraint.Fold(role)]; ok {
			v.add(fault.ReasonDuplicate, field, "is the same as %q but for case", other)
		}
		folded[constraint.Fold(role)] = role
		for _, name := range shares[role].Names() {
			amount := shares[role][name]
			switch {
			case amount < 0:
				v.add(fault.ReasonInvalid, field+"."+name, "must not be negative, is %d", amount)
			case amount > left[name]:
				v.add(fault.ReasonTooLarge, field+"."+name, "sets %d aside, and with the roles before it more than the %d there are", amount, capacity[name])
			default:
				left[name] -= amount
			}
		}
	}
}
