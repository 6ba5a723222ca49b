// Package quantity parses and formats amounts of resources exactly, without rounding, in
// the notation of Kubernetes: `cpu: 2`, `cpu: 500m`, `memory: 4Gi`.
//
// Berth counts in base units: `cpu` in thousandths of a core, `memory` and `disk` in
// bytes, any other resource in whole units. A quantity without a suffix is in cores,
// bytes or whole units. Parse returns the exact number of base units or an error, never a
// rounded or clipped number. Parse(name, String(name, n)) is n for every n that Parse can
// return.
package quantity

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The resources that have a unit.
const (
	CPU    = "cpu"
	Memory = "memory"
	Disk   = "disk"
)

const (
	// MaxCores is the maximum of `cpu`. No host has more cores. A larger number is probably
	// in thousandths of a core and lacks the suffix.
	MaxCores = 4096
	// Max is the maximum of every other resource, in base units. It is well below the
	// largest int64, to which the library clips larger numbers.
	Max = 1 << 62
	// MinPlainCPU is the minimum of `cpu` without a suffix where plain numbers are in base
	// units, a tenth of a core. A smaller number is probably in cores.
	MinPlainCPU = 100

	milli = 1000
)

// syntax is the syntax that Parse accepts. It permits at most six digits after the point,
// because the library rounds digits after the ninth. It permits at most two digits in the
// exponent, because the library computes the whole power of ten.
var syntax = regexp.MustCompile(`^([0-9]{1,24}(\.[0-9]{0,6})?|\.[0-9]{1,6})(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE]\+?[0-9]{1,2})?$`)

// Parse returns the number of base units of a quantity of a resource. The error describes
// the value and does not name a field.
func Parse(name, text string) (int64, error) { return parse(name, text, inUnits) }

// plain says which unit a number without a suffix has. Errors describe this unit.
type plain bool

const (
	inUnits     plain = false // cores, bytes or whole units
	inBaseUnits plain = true
)

func parse(name, text string, number plain) (int64, error) {
	if strings.HasPrefix(text, "-") {
		return 0, fmt.Errorf("must not be negative, got %s", brief(text))
	}
	if !syntax.MatchString(text) {
		return 0, number.unreadable(name, text)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, number.unreadable(name, text)
	}
	if name == CPU {
		if q.CmpInt64(MaxCores) > 0 {
			return 0, fmt.Errorf("must be at most %d cores, got %s; a number without a suffix is in %s, and 2000m is two cores",
				MaxCores, brief(text), number.unit(name))
		}
		n := q.MilliValue()
		if q.Cmp(*resource.NewMilliQuantity(n, resource.DecimalSI)) != 0 {
			return 0, fmt.Errorf("must be a whole number of thousandths of a core, got %s", brief(text))
		}
		return n, nil
	}
	if q.CmpInt64(Max) > 0 {
		return 0, fmt.Errorf("must be at most %d, got %s", int64(Max), brief(text))
	}
	n := q.Value()
	if q.CmpInt64(n) != 0 {
		return 0, fmt.Errorf("must be a whole number of %s, got %s", number.unit(name), brief(text))
	}
	return n, nil
}

// HasSuffix reports whether a text ends in a letter. Such a text is a quantity even where
// plain numbers are in base units.
func HasSuffix(text string) bool {
	if text == "" {
		return false
	}
	last := text[len(text)-1]
	return 'a' <= last && last <= 'z' || 'A' <= last && last <= 'Z'
}

// IsDigits reports whether a text is a whole number without a suffix.
func IsDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// String formats a number of base units as a quantity. The text means the same where
// plain numbers are in base units: `cpu` always has a suffix, and plain numbers of other
// resources are always in base units.
func String(name string, n int64) string {
	switch {
	case n <= 0 || n > Max:
	case name == CPU:
		return strconv.FormatInt(n, 10) + "m"
	case (name == Memory || name == Disk) && n%1024 == 0:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return strconv.FormatInt(n, 10)
}

// Doubt returns a warning if an amount, in base units, is so small that it is probably a mistake, or if its
// name differs only in case from a resource with a unit. Otherwise it returns nil.
func Doubt(name string, n int64) error {
	for _, known := range []string{CPU, Memory, Disk} {
		if name != known && strings.EqualFold(name, known) {
			return fmt.Errorf("this is not the resource %s, because names of resources are case-sensitive", known)
		}
	}
	switch {
	case name == CPU && n > 0 && n < 10:
		return fmt.Errorf("%dm is less than 10m, a hundredth of a core; 2 is two cores", n)
	case name == Memory && n > 0 && n < 1<<20:
		return fmt.Errorf("%s is less than 1Mi; a number without a suffix is in bytes, and 4Gi is four gibibytes", bytes(n))
	}
	return nil
}

// Base returns the number of base units of a value in the REST API. There a plain number
// is in base units, and a text with a suffix is a quantity.
func Base(name, text string) (int64, error) {
	if HasSuffix(text) {
		return parse(name, text, inBaseUnits)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("must be at most %d, got %s", int64(Max), brief(text))
	case err != nil:
		return 0, inBaseUnits.unreadable(name, text)
	}
	return n, nil
}

// CheckUnit returns an error if a value without a suffix in the REST API, in base units, is
// so small that its author probably meant cores.
func CheckUnit(name string, n int64) error {
	if name != CPU || n <= 0 || n >= MinPlainCPU {
		return nil
	}
	return fmt.Errorf("must be at least %d or have a suffix, got %d; write \"%dm\" for cores or \"%dm\" for thousandths of a core",
		MinPlainCPU, n, n*milli, n)
}

// NotBase returns the error for a value that is neither a whole number of base units nor
// a quantity with a suffix. The error contains got unchanged.
func NotBase(name, got string) error {
	switch name {
	case CPU, Memory, Disk:
		return fmt.Errorf("must be a quantity such as %s, got %s; a number without a suffix is a whole number of %s",
			inBaseUnits.example(name), got, inBaseUnits.unit(name))
	}
	return fmt.Errorf("must be a whole number such as %s, got %s", inBaseUnits.example(name), got)
}

func bytes(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// unit returns the unit of a number without a suffix.
func (number plain) unit(name string) string {
	switch {
	case name == CPU && number == inBaseUnits:
		return "thousandths of a core"
	case name == CPU:
		return "cores"
	case name == Memory, name == Disk:
		return "bytes"
	}
	return "units"
}

func (number plain) example(name string) string {
	switch {
	case name == CPU && number == inBaseUnits:
		return "500m or 1500m"
	case name == CPU:
		return "2 or 500m"
	case name == Memory, name == Disk:
		return "4Gi or 512Mi"
	}
	return "2"
}

func (number plain) unreadable(name, text string) error {
	got := strconv.Quote(brief(text))
	if number == inBaseUnits {
		return NotBase(name, got)
	}
	return fmt.Errorf("must be a quantity such as %s, got %s", number.example(name), got)
}

// brief shortens a value for an error.
func brief(text string) string {
	const most = 40
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
