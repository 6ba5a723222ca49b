package internal

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	_ "berth.dev/testkit/fixedseed"
)

// An encoded candidate uses at most request.CandidateSize bytes of a message.
func TestCandidateSizeIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringN(0, 20, 60), rapid.Just(strings.Repeat("x", 300)))
		list := rapid.SliceOfN(text, 0, 5)
		e := model.Candidate{
			Key: model.Key{Job: text.Draw(t, "job"), Stage: text.Draw(t, "stage"), Name: text.Draw(t, "name")},
			UID: text.Draw(t, "uid"), Epoch: rapid.Int64().Draw(t, "epoch"), Mod: rapid.Int64().Draw(t, "mod"),
			Group: text.Draw(t, "group"),
			Trace: model.Trace(text.Draw(t, "trace")), Unchanged: rapid.Bool().Draw(t, "again"),
			NextAt: rapid.Int32Range(0, math.MaxInt32).Draw(t, "next"),
			Constraints: constraint.Constraints{
				Resources:  rapid.MapOfN(text, rapid.Int64(), 0, 5).Draw(t, "resources"),
				Attributes: rapid.MapOfN(text, text, 0, 5).Draw(t, "attributes"),
				SKU:        text.Draw(t, "sku"), Pools: list.Draw(t, "pools"), Role: text.Draw(t, "role"),
				Avoid:       list.Draw(t, "avoid"),
				AvoidFailed: list.Draw(t, "failed"),
				SameShape:   true, Pack: true, Spread: constraint.Spread{By: text.Draw(t, "by"),
					Max: rapid.Int32Min(1).Draw(t, "max")},
			},
		}
		if rapid.Bool().Draw(t, "volume") {
			keep := time.Duration(rapid.Int64().Draw(t, "keepFor"))
			e.Volume = &model.VolumeRequest{Resource: text.Draw(t, "resource"), OnLoss: model.OnVolumeLossReplace,
				KeepFor: &keep}
		}
		for range rapid.IntRange(0, 5).Draw(t, "runs") {
			e.Workers = append(e.Workers, model.Run{First: math.MaxInt32, Last: math.MaxInt32, Number: math.MaxInt32})
		}
		cycle := &controlv1.CycleRequest{Candidates: []*controlv1.Candidate{candidateOf(e)}}
		if size := proto.Size(cycle); size > request.CandidateSize(e) {
			t.Fatalf("%d bytes, and not %d: %+v", size, request.CandidateSize(e), e)
		}
	})
}

// A candidate says where the next reservation of its group stands, however it is sent.
func TestNextAtIsSent(t *testing.T) {
	for _, unchanged := range []bool{false, true} {
		if sent := candidateOf(model.Candidate{UID: "u", Unchanged: unchanged, Mod: 5, NextAt: 7}); sent.GetNextAt() != 7 {
			t.Errorf("unchanged %v: sent %v", unchanged, sent)
		}
	}
}

// A candidate has two lists of executors to avoid, in separate fields: the caller's list,
// and Berth's own list, which executor-state may ignore.
func TestAvoidedExecutorsAreSentSeparately(t *testing.T) {
	sent := candidateOf(model.Candidate{UID: "u", Constraints: constraint.Constraints{Avoid: []string{"caller"},
		AvoidFailed: []string{"berth"}}})
	if !slices.Equal(sent.GetConstraints().GetAvoid(), []string{"caller"}) ||
		!slices.Equal(sent.GetAvoidFailed(), []string{"berth"}) {
		t.Errorf("sent %v", sent)
	}
}
