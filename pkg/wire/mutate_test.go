package wire

import (
	"math/rand/v2"
	"testing"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// seed is a valid value of a kind of record, with its reference.
type seed struct {
	ref   model.Ref
	value []byte
}

func seeds(t testing.TB) []seed {
	t.Helper()
	var list []seed
	for _, record := range records() {
		value, err := Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, seed{record.Ref(), value})
	}
	return list
}

// mutate damages a value. It truncates the value, flips bits, repeats or removes a part, or
// inserts a huge number.
func mutate(rng *rand.Rand, value []byte, other []byte) []byte {
	mutated := append([]byte(nil), value...)
	for range 1 + rng.IntN(4) {
		if len(mutated) == 0 {
			return mutated
		}
		at := rng.IntN(len(mutated))
		switch rng.IntN(7) {
		case 0:
			mutated = mutated[:at]
		case 1:
			mutated[at] ^= 1 << rng.IntN(8)
		case 2:
			mutated = append(mutated[:at:at], mutated[min(len(mutated), at+1+rng.IntN(8)):]...)
		case 3:
			mutated = append(mutated[:at:at], append([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), mutated[at:]...)...)
		case 4:
			mutated[at] = byte(rng.IntN(256))
		case 5:
			mutated = append(mutated, other...) // fields of another kind of record, or all fields twice
		case 6:
			mutated = append(mutated, mutated[at:]...)
		}
	}
	return mutated
}

// use uses a record in the ways in which cores and tools use every record.
func use(ref model.Ref, record model.Record) error {
	switch r := record.(type) {
	case *model.Reservation:
		_ = r.State.String()
		_ = r.Workers.List()
		_ = r.Workers.Raise(r.Unwanted)
		_ = Reservation(ReservationView{Reservation: r, State: r.State}, false)
	case *model.Stage:
		_ = r.Numbers.Len()
		_ = r.Numbers.Raise(r.Numbers)
	case *model.TaskChunk:
		for _, w := range r.Workers {
			_ = w.State.String()
		}
	}
	_ = keyspace.New("test").Key(record.Ref())
	_, err := Encode(record)
	return err
}

// Decoding any value under a key of any kind does not panic. If a record is decoded, it has
// the identity of its key and can be used.
func TestMutatedRecordsAreReadOrRefused(t *testing.T) {
	all := seeds(t)
	for i, s := range all {
		read := 0
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		for n := range 10_000 {
			value := mutate(rng, s.value, all[rng.IntN(len(all))].value)
			if n == 0 {
				value = nil
			}
			record, err := Decode(s.ref, value, 11, 12, 13)
			if err != nil {
				continue
			}
			read++
			if record.Ref() != s.ref {
				t.Fatalf("%x under %+v is read as %+v", value, s.ref, record.Ref())
			}
			if err := use(s.ref, record); err != nil {
				t.Fatalf("%x under %+v: %v", value, s.ref, err)
			}
		}
		if read == 0 || read == 10_000 {
			t.Errorf("%+v: %d of 10,000 mutations are read", s.ref, read)
		}
	}
}

// A well-formed record that no service could have written is refused.
func TestImpossibleRecordsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		ref    model.Ref
		record model.Record
	}{
		"workers without bound": {model.Ref{Kind: model.KindReservation, ID: "u"}, &model.Reservation{
			UID: "u", State: model.Queued, Workers: model.WorkerSet{{First: 0, Last: 1<<31 - 1, Number: 1}},
		}},
		"earlier numbers out of order": {model.Ref{Kind: model.KindReservation, ID: "u"}, &model.Reservation{
			UID: "u", State: model.Queued, Earlier: []model.NumberRange{{First: 2, Last: 4}, {First: 4, Last: 4}},
		}},
		"more earlier numbers than are kept": {model.Ref{Kind: model.KindReservation, ID: "u"}, &model.Reservation{
			UID: "u", State: model.Queued, Earlier: make([]model.NumberRange, model.MaxEarlier+1),
		}},
		"an unknown state": {model.Ref{Kind: model.KindReservation, ID: "u"}, &model.Reservation{UID: "u", State: 200}},
		"an unknown worker state": {model.Ref{Kind: model.KindTaskChunk, ID: "u"}, &model.TaskChunk{
			UID: "u", Workers: []model.TaskWorker{{ID: model.WorkerID{Index: 0, Number: 1}, State: 77}},
		}},
		"chunks without bound": {model.Ref{Kind: model.KindTaskHeader, ID: "u"},
			&model.TaskHeader{UID: "u", Chunks: 1 << 30}},
		"a chunk beyond the last": {model.Ref{Kind: model.KindLeaseChunk, ID: "u", Chunk: 2}, &model.LeaseChunk{
			UID: "u", Chunk: 2, Chunks: 2, Total: 1,
		}},
		"another executor's": {model.Ref{Kind: model.KindExecutor, ID: "a"}, &model.Executor{ID: "b", Ordinal: 1}},
		"no ordinal":         {model.Ref{Kind: model.KindExecutor, ID: "a"}, &model.Executor{ID: "a"}},
		"less than no memory": {model.Ref{Kind: model.KindExecutor, ID: "a"},
			&model.Executor{ID: "a", Ordinal: 1, Resources: map[string]int64{"memory": -1}}},
		"another SKU's": {model.Ref{Kind: model.KindSKU, ID: "a"}, &model.SKU{Name: "b"}},
		"a negative cooldown": {model.Ref{Kind: model.KindSKU, ID: "a"},
			&model.SKU{Name: "a", Scale: &model.ScaleRule{Cooldown: -1}}},
		"nobody's incarnation": {model.Ref{Kind: model.KindLive, ID: "a"}, &model.Live{ID: "a"}},
		"two volumes of an index": {model.VolumeChunkRef(model.Key{Job: "j", Stage: "s"}, 0), volumesOf(
			model.Volume{ID: "a", State: model.VolumeReady}, model.Volume{ID: "b", State: model.VolumeLost})},
		"a volume of another chunk": {model.VolumeChunkRef(model.Key{Job: "j", Stage: "s"}, 0), volumesOf(
			model.Volume{ID: "a", Index: model.VolumeChunkSize, State: model.VolumeReady})},
		"volumes out of order": {model.VolumeChunkRef(model.Key{Job: "j", Stage: "s"}, 0), volumesOf(
			model.Volume{ID: "b", State: model.VolumeReady}, model.Volume{ID: "a", State: model.VolumeDestroying,
				UnwantedSince: at(1)})},
		"an unwanted volume that holds all": {model.VolumeChunkRef(model.Key{Job: "j", Stage: "s"}, 0), volumesOf(
			model.Volume{ID: "a", State: model.VolumeReady, Whole: true, UnwantedSince: at(1)})},
		"a lost volume that holds all": {model.VolumeChunkRef(model.Key{Job: "j", Stage: "s"}, 0), volumesOf(
			model.Volume{ID: "a", State: model.VolumeLost, Whole: true})},
		"a volume without a size": {model.VolumeChunkRef(model.Key{Job: "j", Stage: "s"}, 0), &model.VolumeChunk{Job: "j",
			Stage: "s", Volumes: []model.Volume{{ID: "a", Ordinal: 1, State: model.VolumeReady, Resource: "disk"}}}},
		"cells out of order": {model.OfferRef("u"), &model.Offer{UID: "u", AskedAt: at(1), Cells: []model.CellOffer{
			{Ordinal: 2, State: model.CellPending}, {Ordinal: 1, State: model.CellPending}}}},
		"a cell without an answer": {model.OfferRef("u"), &model.Offer{UID: "u", AskedAt: at(1),
			Cells: []model.CellOffer{{Ordinal: 1}}}},
		"a rating above 100": {model.OfferRef("u"), &model.Offer{UID: "u", AskedAt: at(1),
			Cells: []model.CellOffer{{Ordinal: 1, State: model.CellAccepted, Rating: 101}}}},
		"too many cells": {model.OfferRef("u"), &model.Offer{UID: "u", AskedAt: at(1),
			Cells: make([]model.CellOffer, model.MaxCells+1)}},
		"never ready": {model.Ref{Kind: model.KindReady}, &model.Ready{}},
	} {
		value, err := Encode(c.record)
		if err != nil {
			t.Fatal(err)
		}
		if record, err := Decode(c.ref, value, 1, 1, 0); err == nil {
			t.Errorf("%s: read as %+v", name, record)
		}
	}
	for kind := model.KindReservation; kind <= model.KindOffer; kind++ {
		if kind == model.KindStage || kind == model.KindTaskHeader { // these kinds have no required fields
			continue
		}
		if record, err := Decode(model.Ref{Kind: kind, ID: "x"}, nil, 1, 1, 0); err == nil {
			t.Errorf("kind %d: an empty value is read as %+v", kind, record)
		}
	}
}

// volumesOf returns a chunk of volumes with a home and a size.
func volumesOf(volumes ...model.Volume) *model.VolumeChunk {
	for i := range volumes {
		volumes[i].Ordinal, volumes[i].Each, volumes[i].Resource = 1, resource.Vector{"disk": 1}, "disk"
	}
	return &model.VolumeChunk{Job: "j", Stage: "s", Volumes: volumes}
}

// fuzz decodes values under a key of the given kind.
func fuzz(f *testing.F, kind model.Kind) {
	ref := model.Ref{}
	for _, s := range seeds(f) {
		if s.ref.Kind == kind {
			ref = s.ref
			f.Add(s.value)
			f.Add(s.value[:len(s.value)/2])
		}
	}
	f.Add([]byte{})
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, value []byte) {
		record, err := Decode(ref, value, 11, 12, 13)
		if err != nil {
			return
		}
		if record.Ref() != ref {
			t.Fatalf("read as %+v", record.Ref())
		}
		if err := use(ref, record); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzLeader(f *testing.F)      { fuzz(f, model.KindLeader) }
func FuzzReservation(f *testing.F) { fuzz(f, model.KindReservation) }
func FuzzStage(f *testing.F)       { fuzz(f, model.KindStage) }
func FuzzExecutor(f *testing.F)    { fuzz(f, model.KindExecutor) }
func FuzzLive(f *testing.F)        { fuzz(f, model.KindLive) }
func FuzzLeaseChunk(f *testing.F)  { fuzz(f, model.KindLeaseChunk) }
func FuzzTaskHeader(f *testing.F)  { fuzz(f, model.KindTaskHeader) }
func FuzzTaskChunk(f *testing.F)   { fuzz(f, model.KindTaskChunk) }
func FuzzOffer(f *testing.F)       { fuzz(f, model.KindOffer) }
func FuzzReady(f *testing.F)       { fuzz(f, model.KindReady) }
func FuzzSKU(f *testing.F)         { fuzz(f, model.KindSKU) }
func FuzzPool(f *testing.F)        { fuzz(f, model.KindPool) }
func FuzzDisable(f *testing.F)     { fuzz(f, model.KindDisable) }
func FuzzForgotten(f *testing.F)   { fuzz(f, model.KindForgotten) }
func FuzzPoison(f *testing.F)      { fuzz(f, model.KindPoison) }
func FuzzRefusal(f *testing.F)     { fuzz(f, model.KindRefusal) }
func FuzzVolumeChunk(f *testing.F) { fuzz(f, model.KindVolumeChunk) }
