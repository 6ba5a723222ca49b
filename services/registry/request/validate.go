package request

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// The maximum lengths of names.
const (
	maxName       = 128
	maxExecutorID = 253
)

// WithDefaults fills in the fields that an upsert may omit.
func WithDefaults(u model.Upsert) model.Upsert {
	u.Key.Name = cmp.Or(u.Key.Name, model.MainName)
	u.Spec.Constraints.Resources = u.Spec.Constraints.Resources.WithSlots()
	u.Spec.MaxAttempts = cmp.Or(u.Spec.MaxAttempts, model.DefaultAttempts)
	return u
}

// Validate returns why a request can never be carried out, whatever is queued; nil if it
// can. The error is a *fault.Error that names the field as in the JSON. For a Cancel or a
// CancelJob, Validate checks only that the job is set and that the ID is valid. A key
// with an invalid name does not exist, so cancelling it succeeds.
func Validate(request any) error {
	switch r := request.(type) {
	case model.Upsert:
		return validateUpsert(r)
	case Cancel:
		return cmp.Or(required("job", r.Key.Job), optionalName("requestId", r.RequestID))
	case Bind:
		return validateBind(r)
	case CancelJob:
		return cmp.Or(required("job", r.Job), optionalName("requestId", r.RequestID))
	case CancelWorkers:
		return cmp.Or(validName("job", r.Job), validName("stage", r.Stage), optionalName("requestId", r.RequestID),
			validateRemoval(r.Workers))
	case Flush:
		return validateFlush(r)
	}
	return nil
}

// validateUpsert checks an upsert. A target size of 0 means none. Any other target size
// is at least the number of requested workers, since a stage never has fewer workers than
// one of its batches. Workers that have ended do not count, so only the queue can check those
// that are named by number.
func validateUpsert(u model.Upsert) error {
	return cmp.Or(
		validName("job", u.Key.Job),
		validName("stage", u.Key.Stage),
		optionalName("name", u.Key.Name),
		optionalName("requestId", u.RequestID),
		notNegative("ifEpoch", u.IfEpoch),
		validateWorkers(u),
		validateConstraints(u.Spec.Constraints),
		validateSpec(u),
	)
}

func validateBind(b Bind) error {
	err := cmp.Or(validName("job", b.Key.Job), validName("stage", b.Key.Stage), optionalName("name", b.Key.Name),
		optionalName("requestId", b.RequestID), notNegative("ifEpoch", b.IfEpoch))
	if b.Pool != "" {
		err = cmp.Or(err, checkName("pool", b.Pool, maxExecutorID))
	}
	switch {
	case b.Task == nil:
		return err
	case b.KeepHeld:
		return cmp.Or(err, error(fault.BadField(fault.ReasonInvalid, "task", "must not be set together with keepHeld")))
	}
	return cmp.Or(err, validateTask(*b.Task))
}

// These are the limits of Linux for a program: the bytes of a path, of one argument, and of a
// variable with its name, each without the NUL byte at the end. The limits of a request keep
// the sum of all of them below what Linux accepts.
const (
	maxCommand  = 4096 - 1
	maxArgument = 131_072 - 1
)

// validateTask checks the task of an upsert or a bind. It rejects what no host can start.
func validateTask(t model.Task) error {
	if t.StartTimeout > model.MaxStartTimeout {
		return fault.BadField(fault.ReasonTooLarge, "task.startTimeout", "must be at most %v, got %v", model.MaxStartTimeout,
			t.StartTimeout)
	}
	if !t.StopSignal.Stops() {
		return fault.BadField(fault.ReasonInvalid, "task.stopSignal",
			"must be a signal that a process can handle, got %s; to kill workers at once, set stopGrace to 0s", t.StopSignal)
	}
	return cmp.Or(
		notNegative("task.stopGrace", t.StopGrace),
		noNUL("task.command", t.Command),
		atMost("task.command", len(t.Command), maxCommand, "bytes"),
		validateArgs(t.Args),
		validateEnv(t.Env),
		atMost("task.payload", len(t.Payload), model.MaxPayload, "bytes"),
		notNegative("task.startTimeout", t.StartTimeout),
	)
}

func validateWorkers(u model.Upsert) error {
	switch {
	case len(u.Workers) > 0 && u.Count > 0:
		return fault.BadField(fault.ReasonInvalid, "count", "must not be set together with workers")
	case len(u.Workers) == 0 && u.Count == 0:
		return fault.BadField(fault.ReasonRequired, "workers", "must not be empty without a count, which is 1 to %d",
			model.MaxWorkers)
	}
	if err := cmp.Or(inRange("count", u.Count, 0, model.MaxWorkers),
		atMost("workers", len(u.Workers), model.MaxWorkers, "entries")); err != nil {
		return err
	}
	seen := make(map[int32]bool, len(u.Workers))
	for i, workerID := range u.Workers {
		field := func(name string) string { return fmt.Sprintf("workers[%d].%s", i, name) }
		index, number := workerID.Index, workerID.Number
		switch {
		case index < 0 || index > model.MaxIndex:
			return inRange(field("index"), index, 0, model.MaxIndex)
		case number != NextNumber && (number < 1 || number > model.MaxRequested):
			return inRange(field("number"), number, 1, model.MaxRequested)
		case seen[index]:
			return fault.BadField(fault.ReasonDuplicate, field("index"), "must not repeat, got %d twice", index)
		}
		seen[index] = true
	}
	return nil
}

func validateConstraints(c constraint.Constraints) error {
	for _, name := range c.Resources.Names() {
		field := "constraints.resources." + name
		if err := cmp.Or(entryName("constraints.resources", name), validName(field, name),
			notNegative(field, c.Resources[name])); err != nil {
			return err
		}
	}
	spellings := make(map[string]string, len(c.Attributes))
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		field := "constraints.attributes." + name
		if err := cmp.Or(entryName("constraints.attributes", name), validName(field, name)); err != nil {
			return err
		}
		if other, twice := spellings[strings.ToLower(name)]; twice {
			return fault.BadField(fault.ReasonDuplicate, field, "must not differ from %q only in case", other)
		}
		spellings[strings.ToLower(name)] = name
	}
	return cmp.Or(
		atMost("constraints.resources", len(c.Resources), model.MaxAttributes, "entries"),
		atMost("constraints.attributes", len(c.Attributes), model.MaxAttributes, "entries"),
		optionalName("constraints.sku", c.SKU),
		optionalName("constraints.role", c.Role),
		optionalName("constraints.spread.by", c.Spread.By),
		validNames("constraints.pools", c.Pools, maxName),
		validNames("constraints.avoid", c.Avoid, maxExecutorID),
		notNegative("constraints.spread.max", c.Spread.Max),
		validateSpread(c.Spread),
	)
}

func validateSpread(s constraint.Spread) error {
	switch {
	case s.Max == 0 && s.By != "":
		return fault.BadField(fault.ReasonRequired, "constraints.spread.max",
			"must be at least 1 if spread.by is set: how many workers may share one value")
	case s.Max > 0 && s.By == "":
		return fault.BadField(fault.ReasonRequired, "constraints.spread.by", "must be set together with spread.max")
	}
	return nil
}

// BelowRequested is the error for a target size below the number of requested workers.
func BelowRequested(targetSize int32, requested int) error {
	return fault.BadField(fault.ReasonInvalid, "targetSize",
		"must be at least the number of requested workers, which is %d, got %d", requested, targetSize)
}

func validateSpec(u model.Upsert) error {
	s := u.Spec
	_, unnamed := s.Labels[""]
	switch {
	case len(u.Workers) == 0 && s.TargetSize > 0 && s.TargetSize < u.Count:
		return BelowRequested(s.TargetSize, int(u.Count))
	case s.Priority.Class > model.ClassNewJob:
		return fault.BadField(fault.ReasonInvalid, "priority.class", "is unknown")
	case s.Start == model.StartTogether && s.Batch == model.BatchBestEffort:
		return fault.BadField(fault.ReasonInvalid, "batch", "must not be BEST_EFFORT if start is TOGETHER")
	case s.OnWorkerFailure == model.OnFailedRestart && s.Batch == model.BatchBestEffort:
		return fault.BadField(fault.ReasonInvalid, "batch", "must not be BEST_EFFORT if onWorkerFailure is RESTART_GANG")
	case s.OnWorkerFailure == model.OnFailedRestart && s.Restart == model.RestartAlways:
		return fault.BadField(fault.ReasonInvalid, "restart",
			"must not be ALWAYS if onWorkerFailure is RESTART_GANG, which restarts all workers together")
	case s.Shrink == model.ShrinkHighest && s.TargetSize == 0:
		return fault.BadField(fault.ReasonRequired, "targetSize",
			"must be set if shrink is STOP_HIGHEST: how many workers the stage keeps")
	case unnamed:
		return entryName("labels", "")
	}
	return cmp.Or(
		notNegative("queueTimeout", s.QueueTimeout),
		validateTask(s.Task),
		notNegative("targetSize", s.TargetSize),
		inRange("maxAttempts", cmp.Or(s.MaxAttempts, model.DefaultAttempts), 1, model.MaxMaxAttempts),
		atMost("labels", len(s.Labels), model.MaxLabels, "entries"),
		validateLife(s),
		validateHold(s),
		validateVolume(u),
		validateCells(u),
		validateCompletesWith(s.CompletesWith),
	)
}

// validateCells rejects what a cell cannot keep for its parent. All workers are in one cell or none.
func validateCells(u model.Upsert) error {
	s := u.Spec
	if !s.Constraints.Cells {
		return nil
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"volume", s.Volume != nil}, {"constraints.spread", s.Constraints.Spread.Max > 0},
		{"constraints.sameShape", s.Constraints.SameShape}, {"constraints.pack", s.Constraints.Pack},
	} {
		if f.set {
			return fault.BadField(fault.ReasonUnsupported, f.name, "must not be set together with constraints.cells")
		}
	}
	if s.Batch == model.BatchBestEffort {
		return fault.BadField(fault.ReasonInvalid, "batch", "must not be BEST_EFFORT if constraints.cells is set")
	}
	if runs := len(model.WorkerSetOf(u.Workers)); runs > model.MaxCellRuns {
		return fault.BadField(fault.ReasonTooLarge, "workers",
			"must be in at most %d ranges of consecutive indexes with one number if constraints.cells is set, got %d",
			model.MaxCellRuns, runs)
	}
	return validatePath(s.Labels[model.PathLabel])
}

// validatePath checks the label with the cells through which a reservation came.
func validatePath(label string) error {
	if label == "" {
		return nil
	}
	path := strings.Split(label, "/")
	if err := atMost("labels."+model.PathLabel, len(path), model.MaxPath, "cells"); err != nil {
		return err
	}
	for _, cell := range path {
		if err := checkName("labels."+model.PathLabel, cell, maxExecutorID); err != nil {
			return err
		}
	}
	return nil
}

// validateVolume checks the requested volume. Its size is an amount of what each worker
// uses, with the default slots. A grant writes the volumes of all workers in one
// transaction, which bounds the chunks of volumes.
func validateVolume(u model.Upsert) error {
	v := u.Spec.Volume
	if v == nil {
		return nil
	}
	if u.Spec.Constraints.Resources.WithSlots()[v.Resource] <= 0 {
		return fault.BadField(fault.ReasonInvalid, "volume.resource",
			"must be one of constraints.resources with an amount of at least 1, got %q", v.Resource)
	}
	if v.KeepFor != nil {
		if err := notNegative("volume.keepFor", *v.KeepFor); err != nil {
			return err
		}
	}
	if u.Count > model.MaxVolumeChunks*model.VolumeChunkSize {
		return fault.BadField(fault.ReasonTooLarge, "count", "must be at most %d with a volume, got %d",
			model.MaxVolumeChunks*model.VolumeChunkSize, u.Count)
	}
	chunks := map[int32]bool{}
	for _, workerID := range u.Workers {
		chunks[workerID.Index/model.VolumeChunkSize] = true
	}
	if len(chunks) > model.MaxVolumeChunks {
		return fault.BadField(fault.ReasonTooLarge, "workers",
			"must have indexes in at most %d ranges of %d with a volume, got %d", model.MaxVolumeChunks,
			model.VolumeChunkSize, len(chunks))
	}
	return nil
}

// validateLife checks when a reservation and its workers begin, end and are restarted. That
// an expiry has not passed depends on the living versions; see the upsert.
func validateLife(s model.Spec) error {
	if s.Lifetime.From != model.LifetimeUnset && s.Lifetime.For <= 0 {
		return fault.BadField(fault.ReasonInvalid, "lifetime.for", "must be longer than 0s, got %v", s.Lifetime.For)
	}
	if s.MaxRestarts != nil {
		if err := inRange("maxRestarts", *s.MaxRestarts, 0, model.MaxMaxRestarts); err != nil {
			return err
		}
	}
	return validateExitCodes(s)
}

// validateCompletesWith checks the indexes of the workers whose end is that of the reservation. That the
// reservation has them depends on the living versions; see the upsert.
func validateCompletesWith(of []int32) error {
	if err := atMost("completesWith", len(of), model.MaxCompletesWith, "indexes"); err != nil {
		return err
	}
	for i, index := range of {
		field := fmt.Sprintf("completesWith[%d]", i)
		switch {
		case index < 0 || index > model.MaxIndex:
			return inRange(field, index, 0, model.MaxIndex)
		case slices.Contains(of[:i], index):
			return fault.BadField(fault.ReasonDuplicate, field, "must not repeat, got %d twice", index)
		}
	}
	return nil
}

// validateExitCodes checks which exit codes are restarted. A code that decides nothing would be a
// mistake of the caller.
func validateExitCodes(s model.Spec) error {
	e := s.ExitCodes
	switch {
	case e == nil:
		return nil
	case s.Restart == model.RestartNever && s.OnWorkerFailure != model.OnFailedRestart:
		return fault.BadField(fault.ReasonInvalid, "restartExitCodes",
			"must not be set without restart: ON_FAILURE, restart: ALWAYS or onWorkerFailure: RESTART_GANG")
	}
	seen := map[int32]string{}
	for _, list := range []struct {
		name  string
		codes []int32
	}{{"restartExitCodes.retry", e.Retry}, {"restartExitCodes.fail", e.Fail}} {
		if err := atMost(list.name, len(list.codes), model.MaxExitCodes, "codes"); err != nil {
			return err
		}
		for i, code := range list.codes {
			field := fmt.Sprintf("%s[%d]", list.name, i)
			if err := inRange(field, code, 0, model.MaxExitCode); err != nil {
				return err
			}
			if other := seen[code]; other != "" {
				return fault.BadField(fault.ReasonDuplicate, field, "must not repeat, got %d, which %s has", code, other)
			}
			seen[code] = list.name
		}
	}
	return nil
}

// validateHold checks the hold of a request. All workers of a hold are placed or none, so that
// a bind has all of them.
func validateHold(s model.Spec) error {
	switch {
	case !s.Hold && s.HoldTimeout != nil:
		return fault.BadField(fault.ReasonInvalid, "holdTimeout", "must not be set without hold: HOLD")
	case !s.Hold:
		return nil
	case s.Batch == model.BatchBestEffort:
		return fault.BadField(fault.ReasonInvalid, "batch", "must not be BEST_EFFORT if hold is HOLD")
	}
	return notNegative("holdTimeout", s.HoldLimit())
}

// validateArgs rejects arguments that no program can get.
func validateArgs(args []string) error {
	for i, arg := range args {
		if len(arg) <= maxArgument && strings.IndexByte(arg, 0) < 0 {
			continue // the usual case needs no name of the field
		}
		field := fmt.Sprintf("task.args[%d]", i)
		return cmp.Or(noNUL(field, arg), atMost(field, len(arg), maxArgument, "bytes"))
	}
	return nil
}

func noNUL(field, value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return fault.BadField(fault.ReasonInvalid, field, "must have no NUL byte")
	}
	return nil
}

// validateEnv rejects names and values that no environment can have, and names that agents
// set themselves.
func validateEnv(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		field := "task.env." + name
		switch {
		case name == "":
			return entryName("task.env", name)
		case strings.ContainsAny(name, "=\x00"):
			return fault.BadField(fault.ReasonBadName, field, "must have neither '=' nor a NUL byte in its name")
		case strings.HasPrefix(name, model.AgentVariables):
			return fault.BadField(fault.ReasonInvalid, field, "must not begin with %s: the agent sets these variables",
				model.AgentVariables)
		case strings.Contains(env[name], "\x00"):
			return fault.BadField(fault.ReasonInvalid, field, "must have no NUL byte in its value")
		case len(name)+len("=")+len(env[name]) > maxArgument:
			return fault.BadField(fault.ReasonTooLarge, field, "must have at most %d bytes with its name, got %d", maxArgument,
				len(name)+len("=")+len(env[name]))
		}
	}
	return nil
}

func validateRemoval(workers []model.WorkerID) error {
	if len(workers) == 0 {
		return required("workers", "")
	}
	for i, workerID := range workers {
		field := func(name string) string { return fmt.Sprintf("workers[%d].%s", i, name) }
		switch {
		case workerID.Index < 0:
			return notNegative(field("index"), workerID.Index)
		case workerID.Number < 0:
			return notNegative(field("number"), workerID.Number)
		case workerID.Number == 0:
			return fault.BadField(fault.ReasonRequired, field("number"),
				"must be set: which number of worker index %d to cancel, at least 1", workerID.Index)
		}
	}
	return atMost("workers", len(workers), model.MaxWorkers, "entries")
}

func validateFlush(f Flush) error {
	switch {
	case f.Job == "" && f.Group == "":
		return fault.BadField(fault.ReasonRequired, "job", "must be set if group is not")
	case f.Job != "" && f.Group != "":
		return fault.BadField(fault.ReasonInvalid, "group", "must not be set together with job")
	}
	return cmp.Or(optionalName("job", f.Job), optionalName("group", f.Group), optionalName("requestId", f.RequestID))
}

func required(field, value string) error {
	if value == "" {
		return fault.BadField(fault.ReasonRequired, field, "must not be empty")
	}
	return nil
}

// entryName rejects an entry of a map whose name is empty.
func entryName(field, name string) error {
	if name == "" {
		return fault.BadField(fault.ReasonRequired, field, "the name of an entry must not be empty")
	}
	return nil
}

func notNegative[T int32 | int64 | time.Duration](field string, value T) error {
	if value < 0 {
		return fault.BadField(fault.ReasonInvalid, field, "must not be negative, got %v", value)
	}
	return nil
}

func inRange(field string, value, least, most int32) error {
	switch {
	case value < least:
		return fault.BadField(fault.ReasonInvalid, field, "must be between %d and %d, got %d", least, most, value)
	case value > most:
		return fault.BadField(fault.ReasonTooLarge, field, "must be between %d and %d, got %d", least, most, value)
	}
	return nil
}

// atMost rejects too many units in a field.
func atMost(field string, got, most int, unit string) error {
	if got > most {
		return fault.BadField(fault.ReasonTooLarge, field, "must have at most %d %s, got %d", most, unit, got)
	}
	return nil
}

func validNames(field string, names []string, longest int) error {
	if err := atMost(field, len(names), model.MaxWorkers, "entries"); err != nil {
		return err
	}
	for i, name := range names {
		if err := checkName(fmt.Sprintf("%s[%d]", field, i), name, longest); err != nil {
			return err
		}
	}
	return nil
}

func optionalName(field, name string) error {
	if name == "" {
		return nil
	}
	return validName(field, name)
}

func validName(field, name string) error { return checkName(field, name, maxName) }

// checkName accepts only 1 to longest of the characters [A-Za-z0-9._-], the first a
// letter or digit.
func checkName(field, name string, longest int) error {
	switch {
	case name == "":
		return required(field, name)
	case len(name) > longest:
		return fault.BadField(fault.ReasonBadName, field, "must have at most %d characters, got %d", longest, len(name))
	case !model.WellNamed(name):
		return fault.BadField(fault.ReasonBadName, field,
			"must consist of letters, digits, '.', '_' and '-' and start with a letter or digit, got %q", name)
	}
	return nil
}
