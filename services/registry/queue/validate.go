package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// The longest names.
const (
	maxName       = 128
	maxExecutorID = 253
)

// Validate says whether an upsert is one that can be queued at all. A refusal
// is a *fault.Error that names the field in the words of the JSON.
//
// A target size of 0 is none. One that is given is at least the number of
// workers asked: a stage is never to have fewer workers than one of its
// batches.
func Validate(u model.Upsert) error {
	for _, field := range []struct{ name, value string }{
		{"job", u.Key.Job}, {"stage", u.Key.Stage}, {"name", u.Key.Name},
	} {
		if err := checkName(field.name, field.value, maxName); err != nil {
			return err
		}
	}
	if u.RequestID != "" {
		if err := checkName("requestId", u.RequestID, maxName); err != nil {
			return err
		}
	}
	if u.IfEpoch < 0 {
		return fault.BadField(fault.ReasonInvalid, "ifEpoch", "is negative")
	}
	if err := validateWorkers(u); err != nil {
		return err
	}
	if err := validateConstraints(u.Spec.Constraints); err != nil {
		return err
	}
	return validateSpec(u)
}

func validateWorkers(u model.Upsert) error {
	switch {
	case u.Count < 0:
		return fault.BadField(fault.ReasonInvalid, "count", "is negative")
	case len(u.Workers) > 0 && u.Count > 0:
		return fault.BadField(fault.ReasonInvalid, "count", "is given beside workers: give one of the two")
	case len(u.Workers) == 0 && u.Count == 0:
		return fault.BadField(fault.ReasonRequired, "workers", "no worker is asked for: give workers or count")
	case u.Count > model.MaxWorkers:
		return fault.BadField(fault.ReasonTooLarge, "count", "is more than %d", model.MaxWorkers)
	case len(u.Workers) > model.MaxWorkers:
		return fault.BadField(fault.ReasonTooLarge, "workers", "are more than %d", model.MaxWorkers)
	}
	seen := make(map[int32]struct{}, len(u.Workers))
	for i, workerID := range u.Workers {
		if workerID.Index < 0 {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("workers[%d].index", i), "is negative")
		}
		if workerID.Index > model.MaxIndex {
			return fault.BadField(fault.ReasonTooLarge, fmt.Sprintf("workers[%d].index", i), "must be between 0 and %d, got %d", model.MaxIndex, workerID.Index)
		}
		if workerID.Number > model.MaxRequested {
			return fault.BadField(fault.ReasonTooLarge, fmt.Sprintf("workers[%d].number", i), "must be between 1 and %d, got %d", model.MaxRequested, workerID.Number)
		}
		if workerID.Number < 1 {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("workers[%d].number", i), "is %d: the first number of a worker index is 1", workerID.Number)
		}
		if _, twice := seen[workerID.Index]; twice {
			return fault.BadField(fault.ReasonDuplicate, fmt.Sprintf("workers[%d].index", i), "index %d is given twice", workerID.Index)
		}
		seen[workerID.Index] = struct{}{}
	}
	return nil
}

func validateConstraints(c constraint.Constraints) error {
	for _, name := range c.Resources.Names() {
		if name == "" {
			return emptyName("constraints.resources")
		}
		field := "constraints.resources." + name
		if err := checkName(field, name, maxName); err != nil {
			return err
		}
		if c.Resources[name] < 0 {
			return fault.BadField(fault.ReasonInvalid, field, "is negative")
		}
	}
	if len(c.Resources) > model.MaxAttributes {
		return fault.BadField(fault.ReasonTooLarge, "constraints.resources", "are more than %d", model.MaxAttributes)
	}
	if len(c.Attributes) > model.MaxAttributes {
		return fault.BadField(fault.ReasonTooLarge, "constraints.attributes", "are more than %d", model.MaxAttributes)
	}
	folded := make(map[string]string, len(c.Attributes))
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		if name == "" {
			return emptyName("constraints.attributes")
		}
		field := "constraints.attributes." + name
		if err := checkName(field, name, maxName); err != nil {
			return err
		}
		if other, twice := folded[strings.ToLower(name)]; twice {
			return fault.BadField(fault.ReasonDuplicate, field, "is the same attribute as %q", other)
		}
		folded[strings.ToLower(name)] = name
	}
	for _, optional := range []struct{ name, value string }{
		{"constraints.sku", c.SKU}, {"constraints.role", c.Role}, {"constraints.spread.by", c.Spread.By},
	} {
		if optional.value == "" {
			continue
		}
		if err := checkName(optional.name, optional.value, maxName); err != nil {
			return err
		}
	}
	if err := checkNames("constraints.pools", c.Pools, maxName); err != nil {
		return err
	}
	if err := checkNames("constraints.avoid", c.Avoid, maxExecutorID); err != nil {
		return err
	}
	if c.Spread.Max < 0 {
		return fault.BadField(fault.ReasonInvalid, "constraints.spread.max", "is negative")
	}
	if c.Spread.Max == 0 && c.Spread.By != "" {
		return fault.BadField(fault.ReasonRequired, "constraints.spread.max", "is missing: how many workers may share one value")
	}
	if c.Spread.Max > 0 && c.Spread.By == "" {
		return fault.BadField(fault.ReasonRequired, "constraints.spread.by", "spread.max is given without it")
	}
	return nil
}

func validateSpec(u model.Upsert) error {
	s := u.Spec
	for _, duration := range []struct {
		name  string
		value time.Duration
	}{{"queueTimeout", s.QueueTimeout}, {"task.stopGrace", s.Task.StopGrace}} {
		if duration.value < 0 {
			return fault.BadField(fault.ReasonInvalid, duration.name, "is negative")
		}
	}
	if err := validateEnv(s.Task.Env); err != nil {
		return err
	}
	asked := max(int(u.Count), len(u.Workers))
	switch {
	case s.TargetSize < 0:
		return fault.BadField(fault.ReasonInvalid, "targetSize", "is negative")
	case s.TargetSize > 0 && int(s.TargetSize) < asked:
		return fault.BadField(fault.ReasonInvalid, "targetSize", "is less than the %d workers asked for", asked)
	case s.Priority.Class > model.ClassNewJob:
		return fault.BadField(fault.ReasonInvalid, "priority.class", "is unknown")
	case s.MaxAttempts < 0:
		return fault.BadField(fault.ReasonInvalid, "maxAttempts", "is negative")
	case s.MaxAttempts > model.MaxMaxAttempts:
		return fault.BadField(fault.ReasonTooLarge, "maxAttempts", "is more than %d", model.MaxMaxAttempts)
	case s.Start == model.StartTogether && s.Batch == model.BatchBestEffort:
		return fault.BadField(fault.ReasonInvalid, "batch", "is BEST_EFFORT, and workers that start TOGETHER come whole")
	case len(s.Task.Payload) > model.MaxPayload:
		return fault.BadField(fault.ReasonTooLarge, "task.payload", "is more than %d bytes", model.MaxPayload)
	case len(s.Labels) > model.MaxLabels:
		return fault.BadField(fault.ReasonTooLarge, "labels", "are more than %d", model.MaxLabels)
	}
	if _, has := s.Labels[""]; has {
		return emptyName("labels")
	}
	return nil
}

// emptyName refuses an entry of a map whose name is empty.
func emptyName(field string) error {
	return fault.BadField(fault.ReasonRequired, field, "the name of an entry must not be empty")
}

// validateEnv refuses names that no environment can have, and those that agents set
// themselves.
func validateEnv(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		field := "task.env." + name
		switch {
		case name == "":
			return fault.BadField(fault.ReasonRequired, "task.env", "a variable has no name")
		case strings.ContainsAny(name, "=\x00"):
			return fault.BadField(fault.ReasonBadName, field, "must have neither '=' nor a NUL byte in its name")
		case strings.HasPrefix(name, model.AgentVariables):
			return fault.BadField(fault.ReasonInvalid, field, "must not begin with %s: the agent sets these variables", model.AgentVariables)
		case strings.Contains(env[name], "\x00"):
			return fault.BadField(fault.ReasonInvalid, field, "must have no NUL byte in its value")
		}
	}
	return nil
}

func checkNames(field string, names []string, longest int) error {
	if len(names) > model.MaxWorkers {
		return fault.BadField(fault.ReasonTooLarge, field, "are more than %d", model.MaxWorkers)
	}
	for i, name := range names {
		if err := checkName(fmt.Sprintf("%s[%d]", field, i), name, longest); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses all but 1 to longest of [A-Za-z0-9._-], the first
// alphanumeric.
func checkName(field, name string, longest int) error {
	if name == "" {
		return fault.BadField(fault.ReasonRequired, field, "is empty")
	}
	if len(name) > longest {
		return fault.BadField(fault.ReasonBadName, field, "is longer than %d", longest)
	}
	if !model.WellNamed(name) {
		return fault.BadField(fault.ReasonBadName, field, "%q is not made of letters, digits, '.', '_' and '-', the first a letter or digit", name)
	}
	return nil
}
