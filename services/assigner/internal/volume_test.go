package internal

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/looptest"
)

// Start requests carry the volume of each worker, in a call of one and of several requests.
func TestStartRequestsCarryTheVolume(t *testing.T) {
	var got []*controlv1.VolumeStart
	a := serve(t, &agent{
		submit: func(_ context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
			got = append(got, req.GetVolume())
			return nil, fault.New(fault.Precondition, fault.ReasonVolumeMissing, "no directory")
		},
		several: func(_ context.Context, req *controlv1.SubmitTasksRequest) (*controlv1.SubmitTasksAnswer, error) {
			for _, o := range req.GetOrders() {
				got = append(got, o.GetVolume())
			}
			return &controlv1.SubmitTasksAnswer{}, nil
		},
	})
	o := newSender(t)
	created, used, none := submitTo(a), submitTo(a), submitTo(a)
	created.Volume, used.Volume = &dispatch.VolumeStart{ID: "v1", Create: true}, &dispatch.VolumeStart{ID: "v2"}
	if outcome := o.submitAll(t.Context(), bundle{created})[0]; !refused(fault.ReasonVolumeMissing)(outcome) {
		t.Errorf("the outcome is %#v", outcome)
	}
	o.submitAll(t.Context(), bundle{used, none})
	want := []*controlv1.VolumeStart{{Id: "v1", Create: true}, {Id: "v2"}, nil}
	for i := range want {
		if len(got) != len(want) || !proto.Equal(got[i], want[i]) {
			t.Fatalf("the agent received %v", got)
		}
	}
}

func TestDropVolumes(t *testing.T) {
	var err error
	a := serve(t, &agent{drop: func(context.Context, *controlv1.DropVolumesRequest) (*controlv1.DropVolumesAnswer, error) {
		return &controlv1.DropVolumesAnswer{}, err
	}})
	o := newSender(t)
	drop := dispatch.DropVolumes{Request: dispatch.Request{Address: a.address, Timeout: 10 * time.Second},
		IDs: []string{"v1"}}
	if outcome := o.drop(t.Context(), drop); outcome != (dispatch.Dropping{}) {
		t.Errorf("the outcome is %#v", outcome)
	}
	err = fault.New(fault.Precondition, fault.ReasonVolumeInUse, "a worker is on v1")
	if outcome := o.drop(t.Context(), drop); !refused(fault.ReasonVolumeInUse)(outcome) {
		t.Errorf("the outcome of a refusal is %#v", outcome)
	}
	err = fault.New(fault.Internal, fault.ReasonInternal, "the disk fails")
	if outcome := o.drop(t.Context(), drop); !unknown(outcome) {
		t.Errorf("the outcome of an error is %#v", outcome)
	}
}

// The leader sends the volumes to destroy to their executor, with its term and the nonce and
// incarnation of the registration.
func TestTheLeaderDestroysVolumes(t *testing.T) {
	requests := make(chan *controlv1.DropVolumesRequest, 1)
	a := serve(t, &agent{drop: func(_ context.Context,
		req *controlv1.DropVolumesRequest) (*controlv1.DropVolumesAnswer, error) {
		requests <- req
		return &controlv1.DropVolumesAnswer{}, nil
	}})
	s := store.NewFake(store.FakeConfig{})
	looptest.Write(t, s, &model.Executor{ID: "e", Address: a.address, Ordinal: 1, Incarnation: 3, Nonce: "n",
		Removals: []string{"v3"}})
	looptest.Write(t, s, &model.Live{ID: "e", Incarnation: 3})
	volume := model.Volume{Ordinal: 1, Since: time.Unix(1, 0), Each: resource.Vector{"disk": 1}, Resource: "disk"}
	destroying, ready := volume, volume
	destroying.ID, destroying.State, destroying.UnwantedSince = "v1", model.VolumeDestroying, volume.Since
	ready.ID, ready.State = "v2", model.VolumeReady
	looptest.Write(t, s, &model.VolumeChunk{Job: "j", Stage: "s", Volumes: []model.Volume{destroying, ready}})
	l := looptest.Start(t, s, model.ServiceAssigner, func() *dispatch.Core { return dispatch.New(dispatch.Config{}) },
		newSender(t).Perform)
	want := &controlv1.DropVolumesRequest{Term: l.Status().Term, Executor: "e", Incarnation: 3, Nonce: "n",
		Ids: []string{"v1", "v3"}}
	select {
	case got := <-requests:
		if !proto.Equal(got, want) || got.GetTerm() == 0 {
			t.Errorf("the agent received %v, want %v", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the agent received nothing")
	}
}
