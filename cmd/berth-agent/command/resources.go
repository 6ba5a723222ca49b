package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/quantity"
	"berth.dev/pkg/resource"
)

// warner reports that the value of an option is valid and probably a mistake.
type warner func(flag, text string)

// unheard is for values about which another call warns.
func unheard(string, string) {}

// executorResources returns the configured resources, or by default the resources that it
// detects on the host.
func executorResources(config AgentConfig, warn warner) (resource.Vector, error) {
	configured, err := Pairs("--resources", config.Resources)
	if err != nil {
		return nil, err
	}
	resources := resource.Vector{}
	if len(configured) == 0 {
		if resources, err = agent.Detect(config.Dir); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		resources[name], err = amount("--resources", name, configured[name], warn)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return resources.WithSlots(), nil
}

// warnBeyond warns of configured resources that exceed what the host has: workers would share what
// Berth grants to each of them alone.
func warnBeyond(dir string, configured resource.Vector, warn warner) {
	has := agent.Beyond(dir, configured)
	for _, name := range has.Names() {
		warn("--resources", fmt.Sprintf("%s: %s is more than the %s of this host: Berth grants all of it", name,
			quantity.String(name, configured[name]), quantity.String(name, has[name])))
	}
}

// Pairs parses a list of name=value elements. Each name must occur only once. The error has every mistake.
func Pairs(flag string, list []string) (map[string]string, error) {
	m := map[string]string{}
	var errs []error
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := m[name]; !ok || name == "" || twice {
			errs = append(errs, fault.BadField(fault.ReasonInvalid, flag, "%q is not name=value, or its name occurs twice", text))
			continue
		}
		m[name] = value
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// parseReserved parses the shares of the resources that are reserved for roles. An element
// has the form role:name=amount or role:name=percentage. The element after a comma is another
// amount of the same role (name=amount) or starts the next role. The sum of all shares must
// not exceed the resources.
func parseReserved(list []string, resources resource.Vector, warn warner) (map[string]resource.Vector, error) {
	wrong := func(format string, args ...any) (map[string]resource.Vector, error) {
		return nil, fault.BadField(fault.ReasonInvalid, "--reserved", format, args...)
	}
	shares, spelled := map[string]resource.Vector{}, map[string]string{}
	left, role := resources, ""
	// In a configuration file, one element of the list may contain several shares. On a
	// command line the flag parser has already split the list at these separators.
	for text := range strings.FieldsFuncSeq(strings.Join(list, ","), func(r rune) bool { return r == ',' || r == ';' }) {
		share := text
		if before, rest, named := strings.Cut(text, ":"); named {
			role, share = before, rest
		}
		name, value, ok := strings.Cut(share, "=")
		if role == "" || name == "" || !ok {
			return wrong("%q is not role:name=quantity or role:name=10%%, or its role is missing", text)
		}
		if other, known := spelled[constraint.Fold(role)]; known && other != role {
			return wrong("%s and %s are the same role with different case", role, other)
		}
		spelled[constraint.Fold(role)] = role
		if _, twice := shares[role][name]; twice {
			return wrong("%s of role %s occurs twice", name, role)
		}
		n, err := portion("--reserved", name, value, resources, warn)
		if err != nil {
			return nil, err
		}
		if n > left[name] {
			return wrong("%s:%s=%s is %s, more than the %s that are left of %s", role, name, value, quantity.String(name, n),
				quantity.String(name, left[name]), quantity.String(name, resources[name]))
		}
		if shares[role] == nil {
			shares[role] = resource.Vector{}
		}
		shares[role][name], left = n, left.Plus(-1, resource.Vector{name: n})
	}
	return shares, nil
}

// portion parses an amount of a resource, or a percentage of what the executor has of it,
// such as 10%. It rounds a percentage down to whole base units, so that percentages with a
// sum of at most 100% always fit.
func portion(flag, name, text string, resources resource.Vector, warn warner) (int64, error) {
	digits, isPercentage := strings.CutSuffix(text, "%")
	if !isPercentage {
		return amount(flag, name, text, warn)
	}
	percent, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || percent < 1 || percent > 100 {
		return 0, fault.BadField(fault.ReasonInvalid, flag, "%s must be a whole percentage between 1%% and 100%%, got %.40q",
			name, text)
	}
	total, known := resources[name]
	if !known {
		return 0, fault.BadField(fault.ReasonInvalid, flag, "%s=%s is a percentage of a resource that the executor does not have",
			name, text)
	}
	// The product of total and percent may exceed an int64.
	n := total/100*int64(percent) + total%100*int64(percent)/100
	if n == 0 {
		warn(flag, fmt.Sprintf("%s: %s of %s reserves nothing, because it is rounded down to 0", name, text,
			quantity.String(name, total)))
	}
	return n, nil
}

// amount parses the amount of a resource, and warns if it is implausibly small.
func amount(flag, name, text string, warn warner) (int64, error) {
	n, err := quantity.Parse(name, text)
	if err != nil {
		return 0, fault.BadField(fault.ReasonInvalid, flag, "%s %v", name, err)
	}
	if doubt := quantity.Doubt(name, n); doubt != nil {
		warn(flag, fmt.Sprintf("%s: %v", name, doubt))
	}
	return n, nil
}
