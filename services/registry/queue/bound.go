package queue

import (
	"cmp"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// An effect touches at most this many reservations, with an event and a compare
// each, and about this many bytes: so it stays below the 120 operations and the
// size of a transaction.
const (
	effectReservations = 50
	effectBytes        = 256 << 10
)

// maxStored bounds what one decision of the queue's own may have to write: a
// version twice (as it ends and as it is queued again, or as a part and the
// rest) and its stage. A transaction has 1.5 MiB; what was taken in can always
// be decided on.
const maxStored = 1300 << 10

// full says whether what is still to be decided goes into another effect.
func full(effect model.Effect) bool {
	if len(effect.Puts)+len(effect.Events) >= 2*effectReservations {
		return true
	}
	bytes := 0
	for _, record := range effect.Puts {
		if r, ok := record.(*model.Reservation); ok {
			bytes += size(r)
		}
	}
	return bytes >= effectBytes
}

// makeRoom decides an effect that is full and begins the next one.
func (c *Core) makeRoom(effect *model.Effect) {
	if full(*effect) {
		c.decide(*effect)
		*effect = model.Effect{}
	}
}

// size is about how many bytes a record takes.
func size(r *model.Reservation) int {
	bytes := 512 + sizeOfWorkers(r.Workers) + sizeOfWorkers(r.Unwanted) + len(r.Message) + 64*len(r.Requests)
	for _, f := range r.Failed {
		bytes += len(f.Executor) + 24
	}
	for _, part := range sizes(r.Spec) {
		bytes += part.bytes
	}
	return bytes
}

// sizeOfWorkers is at most what a set of workers takes.
func sizeOfWorkers(s model.WorkerSet) int { return 20 * len(s) }

// CandidateBytes returns an upper bound of a candidate's size in a message.
func CandidateBytes(c model.Candidate) int {
	bytes := 32 + len(c.UID) + len(c.Group)
	if c.Again {
		return bytes
	}
	k := &c.Constraints
	bytes += 80 + len(c.Key.Job) + len(c.Key.Stage) + len(c.Key.Name) + len(c.Trace) + len(k.SKU) + len(k.Role) + len(k.Spread.By) +
		sizeOfWorkers(c.Workers) + sizeOfMap(k.Attributes) + sizeOfList(k.Avoid) + sizeOfList(k.AvoidFailed) + sizeOfList(k.Pools)
	for name := range k.Resources {
		bytes += len(name) + 24
	}
	return bytes
}

// part is a field of a request and about how many bytes it takes.
type part struct {
	field string
	bytes int
}

// sizes are the parts of a body that may be large.
func sizes(s model.Spec) [8]part {
	return [...]part{
		{"task.payload", len(s.Task.Payload)},
		{"task.args", sizeOfList(s.Task.Args) + len(s.Task.Command)},
		{"task.env", sizeOfMap(s.Task.Env)},
		{"labels", sizeOfMap(s.Labels)},
		{"constraints.attributes", sizeOfMap(s.Constraints.Attributes)},
		{"constraints.avoid", sizeOfList(s.Constraints.Avoid)},
		{"constraints.pools", sizeOfList(s.Constraints.Pools)},
		{"constraints.resources", (16 + maxName) * len(s.Constraints.Resources)},
	}
}

func sizeOfList(list []string) (bytes int) {
	for _, text := range list {
		bytes += len(text) + 6
	}
	return bytes
}

func sizeOfMap(m map[string]string) (bytes int) {
	for name, value := range m {
		bytes += len(name) + len(value) + 12
	}
	return bytes
}

// bounded refuses what could be stored once, and not decided on afterwards. The
// field that is named is the one that takes most. Stage is its record as it will
// be, nil where it stays.
func (c *Core) bounded(u model.Upsert, workers model.WorkerSet, stage *model.Stage) error {
	body := sizes(u.Spec)
	parts := append(body[:], part{"workers", sizeOfWorkers(workers)})
	total := 512
	for _, p := range parts {
		total += p.bytes
	}
	if stage == nil { // it stays as it is
		stage = c.stages[stageKey(u.Key)]
	}
	stored := 2 * total
	if stage != nil {
		stored += sizeOfWorkers(stage.Numbers)
	}
	if stored <= maxStored {
		return nil
	}
	largest := slices.MaxFunc(parts, func(a, b part) int { return cmp.Compare(a.bytes, b.bytes) })
	return fault.BadField(fault.ReasonTooLarge, largest.field,
		"the request and the worker indexes that its stage has used take %d bytes with all that may have to be written at once; at most %d are allowed", stored, maxStored)
}
