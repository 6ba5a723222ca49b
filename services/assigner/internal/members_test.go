package internal

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/testkit/looptest"
)

// gangWorld is a leader with a gang of three workers on the executors e0 and e1.
type gangWorld struct {
	*testing.T
	store  *store.Fake
	loop   *loop.Loop[*dispatch.Core]
	sender *Sender
	*Members
}

var gangKey = model.Key{Job: "j", Stage: "s", Name: model.MainName}

func newGangWorld(t *testing.T) *gangWorld {
	w := &gangWorld{T: t, store: store.NewFake(store.FakeConfig{}), sender: newSender(t)}
	for i := range 2 {
		w.move(i, "old")
	}
	looptest.Write(t, w.store, &model.Ready{Since: time.Now()},
		&model.Reservation{Key: gangKey, UID: "u", State: model.Active, CreatedAt: time.Now(),
			Workers: model.WorkerSet{{Last: 3, Number: 1}}},
		&model.TaskHeader{UID: "u", Key: gangKey, Epoch: 1, Complete: true, Chunks: 1, Workers: 3},
		&model.TaskChunk{UID: "u", Workers: []model.TaskWorker{running(0), running(1), running(3)}})
	w.loop = looptest.Start(t, w.store, model.ServiceAssigner,
		func() *dispatch.Core { return dispatch.New(dispatch.Default) }, w.sender.Perform)
	w.Members = NewMembers(w.loop, w.sender)
	return w
}

func running(index int32) model.TaskWorker {
	return model.TaskWorker{ID: model.WorkerID{Index: index, Number: 1}, Ordinal: uint32(index%2 + 1),
		State: model.WorkerRunning, Since: model.InstantOf(time.Now())}
}

// move changes the host of an executor.
func (w *gangWorld) move(i int, host string) {
	looptest.Write(w, w.store, &model.Executor{ID: fmt.Sprintf("e%d", i), Ordinal: uint32(i + 1), Incarnation: 1, Nonce: "n",
		SecretHash: "h", Address: host + ":1"})
}

func (w *gangWorld) get(request *berthv1.ListMembersRequest) *berthv1.ListMembersAnswer {
	w.Helper()
	answer, err := w.list(w.Context(), request, nil)
	if err != nil {
		w.Fatal(err)
	}
	return answer
}

// wait makes a call that waits, and returns when the call waits.
func (w *gangWorld) wait(ctx context.Context, cursor string) (*berthv1.ListMembersAnswer, <-chan error) {
	answer, ended := &berthv1.ListMembersAnswer{}, make(chan error, 1)
	go func() {
		got, err := w.list(ctx, membersRequest(cursor), nil)
		proto.Merge(answer, got)
		ended <- err
	}()
	for !w.sender.watches.waits(gangKey) {
		runtime.Gosched()
	}
	return answer, ended
}

func membersRequest(cursor string) *berthv1.ListMembersRequest {
	return &berthv1.ListMembersRequest{Job: "j", Stage: "s", Cursor: cursor}
}

// A call with the cursor of the list returns when the list differs, and with the same cursor
// when its time is over.
func TestListMembersWaits(t *testing.T) {
	w := newGangWorld(t)
	first := w.get(membersRequest(""))
	if len(first.GetMembers()) != 3 || first.GetWorkers() != 4 || first.GetMembers()[2].GetIndex() != 3 ||
		first.GetMembers()[2].GetExecutor() != "e1" || first.GetMembers()[2].GetHost() != "old" || first.GetRevision() == 0 {
		t.Fatalf("got %v", first)
	}
	short := membersRequest(first.GetCursor())
	short.WaitSeconds = proto.Int32(0)
	if same := w.get(short); same.GetCursor() != first.GetCursor() || len(same.GetMembers()) != 3 {
		t.Errorf("without a wait: %v", same)
	}
	call := &listing{Members: w.Members, key: gangKey, cursor: first.GetCursor()}
	if err := call.wait(t.Context(), time.Millisecond); err != nil || call.members.Cursor != first.GetCursor() {
		t.Errorf("after its time: %v, %v", call.members, err)
	}

	answer, ended := w.wait(t.Context(), first.GetCursor())
	w.move(1, "new")
	if err := <-ended; err != nil || answer.GetMembers()[1].GetHost() != "new" || answer.GetCursor() == first.GetCursor() {
		t.Errorf("after a change: %v, %v", answer, err)
	}
	// The old cursor no longer waits.
	if late := w.get(membersRequest(first.GetCursor())); late.GetCursor() != answer.GetCursor() {
		t.Errorf("with an old cursor: %v", late)
	}
	if w.sender.watches.waits(gangKey) || w.sender.watches.calls != 0 {
		t.Error("a call that has returned counts as waiting")
	}
}

// A call that waits ends with the leadership, so that it can continue at the next leader, and
// with its caller.
func TestListMembersEndsWithTheLeadership(t *testing.T) {
	w := newGangWorld(t)
	cursor := w.get(membersRequest("")).GetCursor()
	ctx, leave := context.WithCancel(t.Context())
	_, left := w.wait(ctx, cursor)
	leave()
	if err := <-left; !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("after the caller has left: %v", err)
	}
	_, ended := w.wait(t.Context(), cursor)
	if err := w.loop.Resign(t.Context(), w.loop.Status().Term); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !fault.Is(err, fault.ReasonNotLeader) && !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("after the end of the leadership: %v", err)
	}
}

// Calls beyond the limit are refused only if they would wait.
func TestListMembersBoundsCallsThatWait(t *testing.T) {
	w := newGangWorld(t)
	cursor := w.get(membersRequest("")).GetCursor()
	w.sender.watches.calls = maxWaiting
	if _, err := w.list(t.Context(), membersRequest(cursor), nil); !fault.Is(err, fault.ReasonOverloaded) {
		t.Errorf("a call that would wait: %v", err)
	}
	if answer := w.get(membersRequest("other")); answer.GetCursor() != cursor {
		t.Errorf("a call that need not wait: %v", answer)
	}
}

// The answer of a call leaves time for its way to the caller.
func TestListMembersWaitsLessThanItsDeadline(t *testing.T) {
	for _, c := range []struct{ left, most time.Duration }{
		{time.Hour, time.Minute}, {30 * time.Second, 29 * time.Second}, {time.Second, 800 * time.Millisecond},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.left)
		if got := waitOf(ctx, membersRequest("")); got > c.most {
			t.Errorf("waits %v with a deadline in %v", got, c.left)
		}
		cancel()
	}
}

func TestListMembersByPage(t *testing.T) {
	w := newGangWorld(t)
	request := membersRequest("")
	request.PageSize = 2
	first := w.get(request)
	// A page never waits, because its list may already be an old one.
	request.PageToken, request.Cursor = first.GetNextPageToken(), first.GetCursor()
	second := w.get(request)
	if len(first.GetMembers()) != 2 || len(second.GetMembers()) != 1 || second.GetMembers()[0].GetIndex() != 3 ||
		second.GetNextPageToken() != "" || second.GetCursor() != first.GetCursor() {
		t.Errorf("got %v and %v", first, second)
	}
}

func TestListMembersRefuses(t *testing.T) {
	w := newGangWorld(t)
	for field, change := range map[string]func(*berthv1.ListMembersRequest){
		"job":         func(r *berthv1.ListMembersRequest) { r.Job = "a/b" },
		"stage":       func(r *berthv1.ListMembersRequest) { r.Stage = "" },
		"name":        func(r *berthv1.ListMembersRequest) { r.Name = "-" },
		"waitSeconds": func(r *berthv1.ListMembersRequest) { r.WaitSeconds = proto.Int32(wire.MaxMembersWait + 1) },
		"pageSize":    func(r *berthv1.ListMembersRequest) { r.PageSize = wire.MaxMembersPage + 1 },
		"pageToken":   func(r *berthv1.ListMembersRequest) { r.PageToken = "-1" },
	} {
		request := membersRequest("")
		change(request)
		_, err := w.list(t.Context(), request, nil)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Only the agent of an executor with a worker of the gang gets its members.
func TestGangsListMembers(t *testing.T) {
	w := newGangWorld(t)
	gangs := NewGangs(w.Members)
	request := &controlv1.GangMembersRequest{Id: "e0", Incarnation: 1, Nonce: "n", Request: membersRequest("")}
	answer, err := gangs.ListMembers(t.Context(), request)
	if err != nil || len(answer.GetMembers()) != 3 {
		t.Errorf("its agent: %v, %v", answer, err)
	}
	request.Nonce = "m"
	if _, err := gangs.ListMembers(t.Context(), request); !fault.Is(err, fault.ReasonPermissionDenied) {
		t.Errorf("another agent: %v", err)
	}
	request.Id = ""
	if _, err := gangs.ListMembers(t.Context(), request); !fault.Is(err, fault.ReasonRequired) {
		t.Errorf("no executor: %v", err)
	}
}
