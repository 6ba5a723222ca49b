package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
)

// Age formats a duration with its two largest units: `3s`, `2m10s`, `5h3m`, `4d7h`.
func Age(d time.Duration) string {
	d = max(d, 0)
	day := 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return units(d, time.Hour, "h", time.Minute, "m")
	default:
		return units(d, day, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}

// since returns the age of a time, or an empty string if the time is not set.
func since(at *timestamppb.Timestamp, now time.Time) string {
	if at == nil {
		return ""
	}
	return Age(now.Sub(at.AsTime()))
}

// state returns the name of an enum value, or UNKNOWN if the value is not set.
func state(s fmt.Stringer) string {
	if name := s.String(); !strings.HasSuffix(name, "_UNSPECIFIED") {
		return name
	}
	return "UNKNOWN"
}

// Key formats the key of a reservation as an argument of commands.
func Key(job, stage, name string) string {
	return job + "/" + stage + "/" + cmp.Or(name, "main")
}

func reservationKey(r *berthv1.Reservation) string { return Key(r.GetJob(), r.GetStage(), r.GetName()) }

// amount formats an amount of a resource in its usual unit: cores, binary multiples of bytes, or
// a plain number.
func amount(resource string, n int64) string {
	switch resource {
	case "cpu":
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	case "memory", "disk":
		return size(n)
	}
	return strconv.FormatInt(n, 10)
}

// size formats a number of bytes in the largest unit that is not larger than the number.
func size(n int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	amount := float64(n)
	for amount >= 1024 && len(units) > 1 {
		amount /= 1024
		units = units[1:]
	}
	return strings.TrimSuffix(strconv.FormatFloat(amount, 'f', 1, 64), ".0") + units[0]
}

// resources formats amounts in the order of their names.
func resources(v map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		parts = append(parts, name+" "+amount(name, v[name]))
	}
	return strings.Join(parts, ", ")
}

// pairs formats a map as `key=value` in the order of its keys.
func pairs(m map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, key+"="+m[key])
	}
	return strings.Join(parts, ",")
}

// byDefault marks the value of an attribute that a request did not name.
const byDefault = " (by default)"

// constraints formats the constraints of a reservation on one line.
func constraints(c *berthv1.Constraints) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, strings.TrimSpace(name+" "+value))
		}
	}
	add("", resources(c.GetResources()))
	add("sku", c.GetSku())
	attributes := maps.Clone(c.GetAttributes())
	for _, name := range c.GetDefaultAttributes() {
		if value, has := attributes[name]; has {
			attributes[name] = value + byDefault
		}
	}
	add("", pairs(attributes))
	add("pools", strings.Join(c.GetPools(), ","))
	add("role", c.GetRole())
	if c.GetSameShape() {
		parts = append(parts, "same shape")
	}
	if s := c.GetSpread(); s != nil {
		add("", fmt.Sprintf("at most %d for each %s", s.GetMax(), s.GetBy()))
	}
	if c.GetPack() {
		parts = append(parts, "packed")
	}
	add("avoid", strings.Join(c.GetAvoid(), ","))
	if c.GetCells() {
		parts = append(parts, "in one cell")
	}
	if len(parts) == 0 {
		return "any executor"
	}
	return strings.Join(parts, ", ")
}

// number formats a count. It returns an empty string for zero.
func number[N int32 | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func plural(n int, one string) string { return fmt.Sprintf("%d %s", n, english.PluralWord(n, one, "")) }
