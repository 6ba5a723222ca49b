package model

import (
	"fmt"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// The limits of names and texts, in bytes.
const (
	MaxID   = 253
	MaxName = 128
	maxText = 256
)

const maxResources = 64

// Violations collects the wrong fields of a request.
type Violations struct {
	reason fault.Reason
	fields []fault.Field
}

// Add adds the violation of a field.
func (v *Violations) Add(reason fault.Reason, field, format string, args ...any) {
	if v.reason == "" {
		v.reason = reason
	}
	v.fields = append(v.fields, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// Err returns one error that names every wrong field, with the reason of the first
// violation; nil if there is none.
func (v *Violations) Err() error {
	if len(v.fields) == 0 {
		return nil
	}
	err := fault.BadField(v.reason, v.fields[0].Name, "%s", v.fields[0].Problem)
	err.Fields = v.fields
	return err
}

// Required checks that a text is set and not too long.
func (v *Violations) Required(field, text string) {
	if text == "" {
		v.Add(fault.ReasonRequired, field, "is required")
	}
	v.Text(field, text)
}

// Name checks a name of at most longest bytes.
func (v *Violations) Name(field, name string, longest int) {
	switch {
	case name == "":
		v.Add(fault.ReasonRequired, field, "is required")
	case len(name) > longest:
		v.Add(fault.ReasonTooLarge, field, "must have at most %d characters, got %d", longest, len(name))
	case !WellNamed(name):
		v.Add(fault.ReasonBadName, field, "must contain only letters, digits, '.', '_' and '-', and start with a letter or digit")
	}
}

// Text checks the length of a free text.
func (v *Violations) Text(field, text string) { v.AtMost(field, len(text), maxText, "bytes") }

// AtMost checks a number of bytes or entries.
func (v *Violations) AtMost(field string, n, most int, unit string) {
	if n > most {
		v.Add(fault.ReasonTooLarge, field, "must have at most %d %s, got %d", most, unit, n)
	}
}

// Resources checks names and amounts.
func (v *Violations) Resources(resources resource.Vector) {
	v.AtMost("resources", len(resources), maxResources, "entries")
	for _, name := range resources.Names() {
		field := "resources." + name
		v.Name(field, name, MaxName)
		v.NotNegative(field, resources[name])
	}
}

// NotNegative checks a number.
func (v *Violations) NotNegative(field string, n int64) {
	if n < 0 {
		v.Add(fault.ReasonInvalid, field, "must not be negative, got %d", n)
	}
}

// Attributes checks names and values. Names that differ only in case are duplicates.
func (v *Violations) Attributes(prefix string, attributes map[string]string) {
	v.AtMost(prefix, len(attributes), MaxAttributes, "entries")
	for _, name := range v.uniqueNames(prefix, slices.Sorted(maps.Keys(attributes))) {
		v.Text(prefix+"."+name, attributes[name])
	}
}

// uniqueNames checks names and returns them. Names that differ only in case are
// duplicates.
func (v *Violations) uniqueNames(prefix string, names []string) []string {
	folded := map[string]string{}
	for _, name := range names {
		v.Name(prefix+"."+name, name, MaxName)
		if other, ok := folded[constraint.Fold(name)]; ok {
			v.Add(fault.ReasonDuplicate, prefix+"."+name, "differs from %q only in case", other)
		}
		folded[constraint.Fold(name)] = name
	}
	return names
}

// Reserved checks the shares of a capacity that are reserved for roles.
func (v *Violations) Reserved(shares map[string]resource.Vector, capacity resource.Vector) {
	v.AtMost("reserved", len(shares), MaxAttributes, "entries")
	left := capacity.Clone()
	for _, role := range v.uniqueNames("reserved", slices.Sorted(maps.Keys(shares))) {
		for _, name := range shares[role].Names() {
			field, amount := "reserved."+role+"."+name, shares[role][name]
			v.NotNegative(field, amount)
			if amount > left[name] {
				v.Add(fault.ReasonTooLarge, field, "exceeds the capacity: %d and the shares of earlier roles are more than %d",
					amount, capacity[name])
			} else {
				left[name] -= max(amount, 0)
			}
		}
	}
}

// CheckRegistration returns an error that names every wrong field of an executor that registers.
func CheckRegistration(e *Executor) error {
	var bad Violations
	bad.Name("id", e.ID, MaxID)
	bad.Required("address", e.Address)
	if e.SKU != "" {
		bad.Name("sku", e.SKU, MaxName)
	}
	bad.Text("host", e.Host)
	bad.Required("nonce", e.Nonce)
	bad.Text("secretHash", e.SecretHash)
	bad.Text("allowLists", e.AllowLists)
	bad.NotNegative("generation", e.Generation)
	bad.Attributes("attributes", e.Attributes)
	bad.Resources(e.Resources)
	bad.Reserved(e.Reserved, e.Resources.WithSlots())
	if e.Cell && len(e.Resources) > 0 {
		bad.Add(fault.ReasonUnsupported, "resources", "a cell has no resources of its own")
	}
	return bad.Err()
}
