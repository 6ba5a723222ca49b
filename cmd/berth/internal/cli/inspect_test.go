package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/testkit/porttest"
)

// TestInspectWithoutEtcd checks the error and its hint if no etcd member answers.
func TestInspectWithoutEtcd(t *testing.T) {
	nobody := porttest.Hold(t)
	code, out, stderr := runWith(t, nil, "inspect", "registry/ready", "--etcd-endpoints", nobody, "--timeout", "100ms")
	want := "berth: no answer from etcd at " + nobody + " within 100ms (UNAVAILABLE)\n" +
		"  hint: set the members with --etcd-endpoints HOST:PORT; 'berth dev' prints the address of its etcd when it starts\n"
	if code != rpc.ExitUnavailable || out != "" || stderr != want {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
}

func TestInspect(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	put := func(key string, value []byte) {
		t.Helper()
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(key, value)}}); err != nil {
			t.Fatal(err)
		}
	}
	message := func(m proto.Message) []byte {
		value, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	space := keyspace.New("default")
	ready := &model.Ready{Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), By: "alice"}
	value, err := wire.Encode(ready)
	if err != nil {
		t.Fatal(err)
	}
	readyKey := space.Key(model.Ref{Kind: model.KindReady})
	put(readyKey, value)
	put(space.Key(model.Ref{Kind: model.KindChain, ID: "registry"}), message(&recordv1.Chain{Batch: "1-2"}))
	put(space.Event(keyspace.EventKey{Job: "train", Service: "registry", Segment: 1, Number: 1, Size: 1}),
		message(&berthv1.Event{Cursor: "7", Job: "train"}))
	put(space.EventFloor("train", "registry"), message(&recordv1.EventFloor{Segment: 4}))
	put(space.NewestSegment("registry"), message(&recordv1.EventSegment{Number: 5}))
	put(space.Segment("registry", 5), message(&recordv1.EventSegment{Number: 5}))
	put(space.Key(model.Ref{Kind: model.KindExecutor, ID: "ex-1"}), message(&recordv1.Executor{Id: "ex-2"}))
	put(space.Key(model.Ref{Kind: model.KindExecutor, ID: "ex-2"}), []byte{0xff})
	put(space.Prefix()+"other", nil)

	read := func(key string, revision int64, output string) (string, error) {
		var out bytes.Buffer
		a := &app{Streams: Streams{Out: &out, Err: &out}}
		err := a.inspectKey(t.Context(), s, key, revision, output)
		return out.String(), err
	}
	for _, c := range []struct{ key, message, record string }{
		{readyKey, "Ready", "by: alice"},
		{space.Prefix() + "registry/chain", "Chain", "batch: 1-2"},
		{space.Event(keyspace.EventKey{Job: "train", Service: "registry", Segment: 1, Number: 1, Size: 1}), "Event",
			`cursor: "7"`},
		{space.EventFloor("train", "registry"), "EventFloor", `segment: "4"`},
		{space.NewestSegment("registry"), "EventSegment", `number: "5"`},
		{space.Segment("registry", 5), "EventSegment", `number: "5"`},
	} {
		text, err := read(c.key, 0, "yaml")
		if err != nil || !strings.Contains(text, "key: "+c.key+"\nmessage: "+c.message+"\ncreateRevision: ") ||
			!strings.Contains(text, c.record) {
			t.Errorf("%s: %v\n%s", c.key, err, text)
		}
	}
	put(readyKey, value)
	before, _, err := s.Get(t.Context(), readyKey)
	if err != nil {
		t.Fatal(err)
	}
	for revision, mod := range map[int64]int64{0: before.Mod, before.Mod: before.Mod, before.Mod - 1: before.Create} {
		text, err := read(readyKey, revision, "json")
		want := fmt.Sprintf(`"createRevision": %d,`+"\n"+`  "modRevision": %d,`, before.Create, mod)
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("at %d: %v\n%s", revision, err, text)
		}
	}

	for key, problem := range map[string]string{"ex-1": `got "ex-2"`, "ex-2": "cannot parse"} {
		text, err := read(space.Prefix()+"executors/records/"+key, 0, "yaml")
		if fault.Of(err).Reason != fault.ReasonPoison || !strings.Contains(text, "problem: ") ||
			!strings.Contains(text, problem) {
			t.Errorf("%s: %v\n%s", key, err, text)
		}
	}
	if text, err := read(space.Prefix()+"executors/", 0, "yaml"); err != nil ||
		text != "/berth/default/executors/records/ex-1\n/berth/default/executors/records/ex-2\n" {
		t.Errorf("keys: %v\n%s", err, text)
	}
	for key, kind := range map[string]fault.Kind{
		"none": fault.NotFound, "none/": fault.NotFound, "other": fault.Invalid,
	} {
		if text, err := read(space.Prefix()+key, 0, "yaml"); fault.Of(err).Kind != kind || text != "" {
			t.Errorf("%s: %v\n%s", key, err, text)
		}
	}
}
