package request

import (
	"cmp"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// maxStored bounds what one decision of the queue may have to write: a stage and two
// records of a version. The two are the ended and the requeued version, or the part and
// the rest. An etcd transaction takes 1.5 MiB, so the queue can decide on every accepted
// request later.
const maxStored = 1300 << 10

// Size returns the approximate number of bytes of a reservation's record.
func Size(r *model.Reservation) int {
	bytes := 512 + WorkersSize(r.Workers) + WorkersSize(r.Unwanted) + len(r.Message) + 64*len(r.Requests) +
		WorkersSize(r.Requeued) + WorkersSize(r.Missing) + 12*len(r.Earlier)
	for _, g := range r.StopGraces {
		bytes += 16 + WorkersSize(g.Workers)
	}
	for _, f := range r.Failed {
		bytes += len(f.Executor) + 24
	}
	if r.Ends != nil {
		bytes += 32 + len(r.Ends.Cause.Text)
		for _, e := range slices.Concat(r.Ends.Own, r.Ends.Past) {
			bytes += 16 + WorkersSize(e.Workers)
		}
	}
	for _, field := range sizesOf(r.Spec) {
		bytes += field.bytes
	}
	if r.Latest != nil {
		bytes += 128 + WorkersSize(r.Latest.Workers)
		for _, field := range sizesOf(r.Latest.Spec) {
			bytes += field.bytes
		}
	}
	return bytes
}

// StageSize returns the approximate number of bytes of a stage's record; 0 for nil.
func StageSize(s *model.Stage) int {
	if s == nil {
		return 0
	}
	return 128 + WorkersSize(s.Numbers) + 64*len(s.Idle)
}

// WorkersSize returns an upper bound for the bytes of a set of workers.
func WorkersSize(s model.WorkerSet) int { return 20 * len(s) }

// CandidateSize returns an upper bound for the bytes of a candidate in the message of a
// scheduling cycle.
func CandidateSize(c model.Candidate) int {
	bytes := 32 + len(c.UID) + len(c.Group)
	if c.Unchanged {
		return bytes
	}
	k := &c.Constraints
	bytes += 80 + len(c.Key.Job) + len(c.Key.Stage) + len(c.Key.Name) + len(c.Trace) + len(k.SKU) + len(k.Role) +
		len(k.Spread.By) +
		WorkersSize(c.Workers) + sizeOfMap(k.Attributes) + sizeOfList(k.Defaults) + sizeOfList(k.Avoid) +
		sizeOfList(k.AvoidFailed) + sizeOfList(k.RefusedBy) + sizeOfList(k.Pools) + len(c.Chosen)
	for name := range k.Resources {
		bytes += len(name) + 24
	}
	if c.Volume != nil {
		bytes += 48 + len(c.Volume.Resource)
	}
	return bytes
}

// fieldSize is a field of a request and its approximate number of bytes.
type fieldSize struct {
	field string
	bytes int
}

// sizesOf returns the sizes of the fields of a body that may be large.
func sizesOf(s model.Spec) [8]fieldSize {
	return [...]fieldSize{
		{"task.payload", len(s.Task.Payload)},
		{"task.args", sizeOfList(s.Task.Args) + len(s.Task.Command)},
		{"task.env", sizeOfMap(s.Task.Env)},
		{"labels", sizeOfMap(s.Labels)},
		{"constraints.attributes", sizeOfMap(s.Constraints.Attributes) + sizeOfList(s.Constraints.Defaults)},
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

// CheckSize rejects a reservation that could be stored with the record of its stage once,
// but would be too large for a later decision. The error names the largest field.
func CheckSize(spec model.Spec, workers model.WorkerSet, stage *model.Stage) error {
	total := 512 + WorkersSize(workers)
	for _, f := range sizesOf(spec) {
		total += f.bytes
	}
	stored := 2 * total
	if stage != nil {
		stored += WorkersSize(stage.Numbers)
	}
	if stored <= maxStored {
		return nil
	}
	return tooLarge(spec, workers, stored)
}

// CheckStored rejects a latest request with which a record would be too large for a later
// decision. The error names the largest field of the request.
func CheckStored(r *model.Reservation, stage *model.Stage) error {
	stored := 2*Size(r) + WorkersSize(stage.Numbers)
	if r.Latest == nil || stored <= maxStored {
		return nil
	}
	return tooLarge(r.Latest.Spec, r.Latest.Workers, stored)
}

func tooLarge(spec model.Spec, workers model.WorkerSet, stored int) error {
	body := sizesOf(spec)
	fields := append(body[:], fieldSize{"workers", WorkersSize(workers)})
	largest := slices.MaxFunc(fields, func(a, b fieldSize) int { return cmp.Compare(a.bytes, b.bytes) })
	return fault.BadField(fault.ReasonTooLarge, largest.field,
		"the request and the used worker indexes of its stage may take %d bytes in one transaction, the limit is %d", stored,
		maxStored)
}
