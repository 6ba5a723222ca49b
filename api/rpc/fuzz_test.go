package rpc_test

import (
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

func TestUnpackAlwaysReturnsAnError(t *testing.T) {
	for _, text := range [][]byte{nil, {0xff}, rpc.Pack(nil)} {
		if f := rpc.Unpack(text); f == nil || f.Kind != fault.Internal {
			t.Errorf("%x: got %v", text, f)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte{})
	f.Add(rpc.Pack(fault.BadField(fault.ReasonBadName, "job", "%q is not a name", "/")))
	f.Add(rpc.Pack(fault.New(fault.Precondition, fault.ReasonNotLeader, "a leads").With("leader", "127.0.0.1:7101")))
	hostile, err := proto.Marshal(&spb.Status{Code: -7, Message: "x",
		Details: []*anypb.Any{{TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: []byte{0xff}}, {TypeUrl: "/"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hostile)
	f.Fuzz(func(t *testing.T, text []byte) {
		got := rpc.Unpack(text)
		if got == nil {
			t.Fatal("no error")
		}
		_, _, _ = rpc.HTTPStatus(got.Kind), rpc.ExitCode(got), got.Error()
		again := rpc.Unpack(rpc.Pack(got))
		if again.Kind != got.Kind {
			t.Fatalf("%v became %v", got, again)
		}
	})
}
