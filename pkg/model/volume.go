package model

import (
	"cmp"
	"time"

	"berth.dev/pkg/resource"
)

// OnVolumeLoss says what happens to a worker index whose volume is LOST, or whose volume is
// on a LOST executor.
type OnVolumeLoss uint8

// The modes.
const (
	// OnVolumeLossWait: the index waits for its volume.
	OnVolumeLossWait OnVolumeLoss = iota
	// OnVolumeLossReplace: the index starts with a new volume elsewhere.
	OnVolumeLossReplace
)

var onVolumeLossNames = [...]string{"WAIT", "REPLACE"}

func (o OnVolumeLoss) String() string { return onVolumeLossNames[o] }

// VolumeRequest requests a volume for each worker index of a reservation.
type VolumeRequest struct {
	// Resource is one of the requested resources. Its amount is the size of the volume.
	Resource string
	OnLoss   OnVolumeLoss
	// KeepFor is how long the volume is kept after nobody wants it; nil until it is deleted.
	KeepFor *time.Duration
}

// Equal reports whether two requests are equal; either may be nil.
func (v *VolumeRequest) Equal(o *VolumeRequest) bool {
	if v == nil || o == nil {
		return v == o
	}
	return v.Resource == o.Resource && v.OnLoss == o.OnLoss && equalDuration(v.KeepFor, o.KeepFor)
}

func equalDuration(a, b *time.Duration) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// VolumeState is the state of a volume.
type VolumeState uint8

// The states of a volume. PLANNED: granted, and its executor has not listed it yet. READY:
// its executor has listed it. LOST: a later list of its executor lacks it. ABANDONED: its
// worker index starts elsewhere, with another volume. DESTROYING: its executor must destroy
// it; the record is deleted once the executor has confirmed that.
const (
	VolumeUnset VolumeState = iota
	VolumePlanned
	VolumeReady
	VolumeLost
	VolumeAbandoned
	VolumeDestroying
)

var volumeStateNames = [...]string{"", "PLANNED", "READY", "LOST", "ABANDONED", "DESTROYING"}

func (s VolumeState) String() string { return volumeStateNames[s] }

// Current reports whether a volume in the state is the volume of its worker index. An index
// has at most one such volume.
func (s VolumeState) Current() bool { return s >= VolumePlanned && s <= VolumeLost }

const (
	// VolumeChunkSize is the number of worker indexes of a VolumeChunk.
	VolumeChunkSize = 64
	// MaxChunkVolumes is the maximum number of volumes in a VolumeChunk: the volume of each
	// index, and volumes that were abandoned and not destroyed yet.
	MaxChunkVolumes = 4 * VolumeChunkSize
	// MaxVolumeChunks is the maximum number of VolumeChunks that one grant writes, so that it
	// is one transaction.
	MaxVolumeChunks = 64
	// MaxListedVolumes is the maximum number of volumes in a list of an executor.
	MaxListedVolumes = 10_000
	// MaxDroppedVolumes is the maximum number of volumes in a request to destroy volumes.
	MaxDroppedVolumes = 1000
	// MaxVolumeID is the maximum length of an ID in bytes. Berth's own IDs are shorter, but an
	// executor may list volumes that Berth did not create.
	MaxVolumeID = 64
)

// VolumeChunk is the record of the volumes of VolumeChunkSize worker indexes of a stage, in
// order of index and ID.
type VolumeChunk struct {
	Job, Stage string
	Chunk      int32
	Volumes    []Volume
}

// Ref implements Record.
func (c *VolumeChunk) Ref() Ref {
	return Ref{Kind: KindVolumeChunk, Key: Key{Job: c.Job, Stage: c.Stage}, Chunk: c.Chunk}
}

// VolumeChunkRef returns the Ref of the chunk with the volumes of a worker index. The key is
// that of the stage.
func VolumeChunkRef(stage Key, index int32) Ref {
	return Ref{Kind: KindVolumeChunk, Key: stage, Chunk: index / VolumeChunkSize}
}

// Volume is a share of an executor that belongs to a worker index and outlives its workers.
type Volume struct {
	// ID is never reused.
	ID    string
	Index int32
	// Ordinal is the ordinal of its home, the executor that has it.
	Ordinal uint32
	State   VolumeState
	// Since is when it came into its state.
	Since time.Time
	// Each has the resources of the worker for which it was granted last. Resource is the one
	// of them whose amount is the size of the volume, and Role is the role of that worker.
	Each     resource.Vector
	Resource string
	Role     string
	// Whole is set while the volume holds Each: from a grant until nobody wants the volume.
	Whole bool
	// UnwantedSince is the time since which nobody wants the volume: no reservation names its
	// index, or the index has another volume. It is zero while the volume is wanted.
	UnwantedSince time.Time
	// KeepFor is how long the volume is kept from UnwantedSince; nil until it is deleted.
	KeepFor *time.Duration
	// Used is set once a worker on the volume has ended that may have written to it.
	Used bool
	// Delete is set if the deletion of the volume was requested.
	Delete bool
	// Incarnation and Sequence identify the list of its home after which the volume last
	// changed. An earlier list proves nothing about it.
	Incarnation, Sequence int64
}

// Compare orders volumes by index and ID.
func (v *Volume) Compare(o *Volume) int {
	return cmp.Or(cmp.Compare(v.Index, o.Index), cmp.Compare(v.ID, o.ID))
}

// Amount returns the size of the volume.
func (v *Volume) Amount() int64 { return v.Each[v.Resource] }

// Holds returns what the volume holds of its executor's resources.
func (v *Volume) Holds() resource.Vector {
	switch {
	case v.State == VolumeLost:
		return nil
	case v.Whole:
		return v.Each
	}
	return resource.Vector{v.Resource: v.Amount()}
}

// Equal reports whether two volumes are equal.
func (v *Volume) Equal(o *Volume) bool {
	return v.ID == o.ID && v.Index == o.Index && v.Ordinal == o.Ordinal && v.State == o.State &&
		v.Since.Equal(o.Since) && v.Each.Equal(o.Each) && v.Resource == o.Resource && v.Role == o.Role &&
		v.Whole == o.Whole && v.UnwantedSince.Equal(o.UnwantedSince) && equalDuration(v.KeepFor, o.KeepFor) &&
		v.Used == o.Used && v.Delete == o.Delete && v.Incarnation == o.Incarnation && v.Sequence == o.Sequence
}
