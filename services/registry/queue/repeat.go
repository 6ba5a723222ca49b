package queue

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// fingerprint tells requests apart by what they ask for. It is stored, and compared by
// later versions: a field that is added goes in only where it is set.
type fingerprint struct {
	sum hash.Hash64
	buf [8]byte
}

func fingerprintOf(call string) *fingerprint {
	f := &fingerprint{sum: fnv.New64a()}
	f.text(call)
	return f
}

func (f *fingerprint) number(n int64) {
	binary.BigEndian.PutUint64(f.buf[:], uint64(n))
	f.sum.Write(f.buf[:])
}

func (f *fingerprint) text(s string) {
	f.number(int64(len(s)))
	f.sum.Write([]byte(s))
}

func (f *fingerprint) texts(list []string) {
	f.number(int64(len(list)))
	for _, s := range list {
		f.text(s)
	}
}

func (f *fingerprint) table(m map[string]string) {
	f.number(int64(len(m)))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		f.text(name)
		f.text(m[name])
	}
}

func (f *fingerprint) flag(b bool) {
	if b {
		f.number(1)
	} else {
		f.number(0)
	}
}

func (f *fingerprint) key(k model.Key) {
	f.text(k.Job)
	f.text(k.Stage)
	f.text(k.Name)
}

func (f *fingerprint) workers(list []model.WorkerID) {
	f.number(int64(len(list)))
	for _, workerID := range slices.SortedFunc(slices.Values(list), model.WorkerID.Compare) {
		f.number(int64(workerID.Index)<<32 | int64(workerID.Number))
	}
}

// value is the fingerprint; 0 stands for none.
func (f *fingerprint) value() uint64 { return max(f.sum.Sum64(), 1) }

// call is the fingerprint of an upsert with its defaults filled in. What one request
// may write in two ways counts as the same; the trace does not count.
func callOf(u model.Upsert) uint64 {
	if u.RequestID == "" {
		return 0
	}
	s, c := u.Spec, u.Spec.Constraints
	f := fingerprintOf("upsert")
	f.key(u.Key)
	f.number(int64(u.Count))
	f.workers(u.Workers)
	f.number(u.IfEpoch)
	f.number(int64(s.TargetSize))
	f.number(int64(len(c.Resources)))
	for _, name := range c.Resources.Names() {
		f.text(name)
		f.number(c.Resources[name])
	}
	f.text(c.SKU)
	f.table(c.Attributes)
	f.texts(c.Pools)
	f.text(c.Role)
	f.flag(c.SameShape)
	f.text(c.Spread.By)
	f.number(int64(c.Spread.Max))
	f.flag(c.Pack)
	f.texts(c.Avoid)
	f.number(int64(s.Priority.Class))
	f.number(int64(s.Priority.Tier))
	f.flag(s.Priority.Order != nil)
	if s.Priority.Order != nil {
		f.number(*s.Priority.Order)
	}
	f.text(s.Task.Command)
	f.texts(s.Task.Args)
	f.table(s.Task.Env)
	f.text(string(s.Task.Payload))
	f.number(int64(s.Task.StopGrace))
	f.number(int64(s.Batch))
	f.number(int64(startOf(s)))
	f.number(int64(onFailureOf(s)))
	f.number(int64(s.MaxAttempts))
	f.number(int64(s.QueueTimeout))
	f.table(s.Labels)
	return f.value()
}

func (r Cancel) call() uint64 {
	f := fingerprintOf("cancel")
	f.key(r.Key)
	f.number(r.IfEpoch)
	return f.value()
}

func (r CancelJob) call() uint64 {
	f := fingerprintOf("cancel-job")
	f.text(r.Job)
	return f.value()
}

func (r CancelWorkers) call() uint64 {
	f := fingerprintOf("cancel-workers")
	f.text(r.Job)
	f.text(r.Stage)
	f.workers(r.Workers)
	return f.value()
}

func (r Flush) call() uint64 {
	f := fingerprintOf("flush")
	f.text(r.Job)
	f.text(r.Group)
	return f.value()
}

// repeats reports whether a remembered call is the one that has come. What was
// remembered before there were fingerprints matches any.
func repeats(remembered, call uint64) bool { return remembered == 0 || remembered == call }

// anotherCall refuses a request under the ID of a different one.
func anotherCall(id string) error {
	err := fault.BadField(fault.ReasonDuplicate, "requestId", "%q was used for another call", id)
	err.Kind = fault.Conflict
	return err
}
