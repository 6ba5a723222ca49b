package access

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
)

// FuzzSubject checks that scan finds the same subject in an encoded request as a decoder
// does. Otherwise a caller could name its own job to the gateway and another one to the
// service.
func FuzzSubject(f *testing.F) {
	methods, _ := Methods()
	add := func(method string, request proto.Message) {
		frame, err := proto.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		for i, known := range methods {
			if known == method {
				f.Add(uint8(i), frame)
				f.Add(uint8(i), append(frame, frame...))
			}
		}
	}
	upsert := &berthv1.UpsertReservationRequest{RequestId: "outer", Reservation: &berthv1.Reservation{Job: "train",
		Stage: "s", RequestId: proto.String("inner"), Count: 3}}
	add(berthv1.Reservations_UpsertReservation_FullMethodName, upsert)
	add(berthv1.Reservations_CancelJob_FullMethodName, &berthv1.CancelJobRequest{Job: "train", RequestId: "r"})
	add(berthv1.Events_WatchEvents_FullMethodName, &berthv1.WatchEventsRequest{Job: "train"})
	add(berthv1.Catalog_PutSku_FullMethodName, &berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: "small"}})
	add(berthv1.Executors_DisableExecutors_FullMethodName, &berthv1.DisableExecutorsRequest{
		Selector: &berthv1.ExecutorSelector{Ids: []string{"host-1"}, Attributes: map[string]string{"zone": "a"}}})
	add(berthv1.Executors_EnableExecutors_FullMethodName, &berthv1.EnableExecutorsRequest{DisableRequestId: "d"})
	add(berthv1.Volumes_DeleteVolumes_FullMethodName, &berthv1.DeleteVolumesRequest{Ids: []string{"v1", "", "v2"},
		Executor: "host-1"})
	add(controlv1.Heartbeats_Heartbeat_FullMethodName, &controlv1.HeartbeatRequest{Id: "host-1"})
	add(controlv1.Agents_Register_FullMethodName, &controlv1.RegisterRequest{Id: "host-1"})
	f.Fuzz(func(t *testing.T, index uint8, frame []byte) {
		method := methods[int(index)%len(methods)]
		got, scanErr := scan(method, frame)
		name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			return // health checks and paths
		}
		kind, err := protoregistry.GlobalTypes.FindMessageByName(found.(protoreflect.MethodDescriptor).Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		request := kind.New().Interface()
		if proto.Unmarshal(frame, request) != nil || len(frame) > maxScanned {
			return // the service rejects the request, or scan may cut texts off
		}
		if want := subjectOf(request); got != want || scanErr != nil {
			t.Errorf("%s: scan returns %+v, %v; the request is about %+v", method, got, scanErr, want)
		}
	})
}

// The object names what a request selects.
func TestTheObjectOfARequest(t *testing.T) {
	for want, request := range map[string]proto.Message{
		"train/s/n": &berthv1.GetReservationRequest{Job: "train", Stage: "s", Name: "n"},
		"a,b,zone=eu": &berthv1.DisableExecutorsRequest{Selector: &berthv1.ExecutorSelector{Ids: []string{"a", "b"},
			Attributes: map[string]string{"zone": "eu"}}},
		"host-1/v1,v2": &berthv1.DeleteVolumesRequest{Ids: []string{"v1", "v2"}, Executor: "host-1"},
		"d1":           &berthv1.EnableExecutorsRequest{DisableRequestId: "d1"},
		"small":        &berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: "small"}},
	} {
		if got := subjectOf(request).object(); got != want {
			t.Errorf("%v: %q, want %q", request, got, want)
		}
	}
}

// scan cuts long texts off.
func TestScanCutsLongTextsOff(t *testing.T) {
	frame, err := proto.Marshal(&berthv1.CancelJobRequest{Job: strings.Repeat("x", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := scan(berthv1.Reservations_CancelJob_FullMethodName, frame)
	if err != nil || len(got.job) != maxScanned {
		t.Errorf("%d bytes, %v", len(got.job), err)
	}
}
