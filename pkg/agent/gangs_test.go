package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// gangList lists the members of the only gang, with pages of one member.
type gangList struct {
	controlv1.UnimplementedGangsServer

	mu      sync.Mutex
	members *model.Members
	err     error
	changed chan struct{}
	calls   int // in progress
	// came is closed and replaced when a call begins or ends.
	came    chan struct{}
	invalid []string
}

func newGangList(workers int, list ...model.Member) *gangList {
	return &gangList{members: model.NewMembers(workers, list, model.Unplaced{}), changed: make(chan struct{}),
		came: make(chan struct{})}
}

// member returns member 0.1, 1.1 and so on. Its host has a suffix.
func member(index int32, suffix string) model.Member {
	host := fmt.Sprint("host-", index)
	return model.Member{ID: model.WorkerID{Index: index, Number: 1}, Executor: host, Host: host + suffix}
}

func (g *gangList) set(err error, list ...model.Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members, g.err = model.NewMembers(g.members.Workers, list, model.Unplaced{}), err
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gangList) ListMembers(ctx context.Context, req *controlv1.GangMembersRequest) (*berthv1.ListMembersAnswer,
	error) {
	q := req.GetRequest()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(+1)
	defer g.count(-1)
	if req.GetId() != "host" || req.GetIncarnation() == 0 || req.GetNonce() == "" || q.GetJob() != "job" ||
		q.GetStage() != "stage" || q.GetName() != "main" {
		g.invalid = append(g.invalid, req.String())
	}
	for q.GetPageToken() == "" && q.GetCursor() == g.members.Cursor && g.err == nil {
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if g.err != nil {
		return nil, g.err
	}
	answer := &berthv1.ListMembersAnswer{Cursor: g.members.Cursor, Workers: int32(g.members.Workers)}
	at := len(q.GetPageToken())
	if at < len(g.members.List) {
		m := g.members.List[at]
		answer.Members = []*berthv1.Member{{Index: m.ID.Index, Number: m.ID.Number, Executor: m.Executor, Host: m.Host}}
	}
	if at+1 < len(g.members.List) {
		answer.NextPageToken = strings.Repeat("x", at+1)
	}
	return answer, nil
}

func (g *gangList) count(by int) {
	g.calls += by
	close(g.came)
	g.came = make(chan struct{})
}

// await waits until a number of calls is in progress.
func (g *gangList) await(t *testing.T, calls int) {
	t.Helper()
	for {
		g.mu.Lock()
		came, now := g.came, g.calls
		g.mu.Unlock()
		if now == calls {
			return
		}
		select {
		case <-came:
		case <-time.After(time.Minute):
			t.Fatalf("%d calls are in progress, want %d", now, calls)
		}
	}
}

// gangAgent runs an agent of a control plane that lists the members of gangs.
func gangAgent(t *testing.T, g *gangList, dir string, of Config) (*Agent, *control, func()) {
	t.Helper()
	c := newControl(50 * time.Millisecond)
	c.gang = g
	t.Cleanup(func() {
		if len(g.invalid) > 0 {
			t.Errorf("invalid requests: %v", g.invalid)
		}
	})
	return runProcessesIn(t, c, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, of)
}

// inGang returns a start request of a worker of a gang.
func inGang(index, workers int32, command string, args ...string) *controlv1.SubmitTaskRequest {
	req := submit(index, 1, command, args...)
	req.Reservation, req.Workers = model.MainName, workers
	return req
}

// gangFile returns the path of the file of a worker.
func gangFile(dir string, index int32) string {
	id := identity{model.Worker{Job: "job", Stage: "stage", ID: model.WorkerID{Index: index, Number: 1}}, 100}
	return filepath.Join(workerPath(dir, id), fileGang)
}

// readGang reads a file and checks that it has one whole list.
func readGang(t *testing.T, path string) membersFile {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseGang(t, string(text))
}

func parseGang(t *testing.T, text string) membersFile {
	t.Helper()
	var file membersFile
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var list []model.Member
	for _, m := range file.Members {
		id := model.WorkerID{Index: m.Index, Number: m.Number}
		list = append(list, model.Member{ID: id, Executor: m.Executor, Host: m.Host})
	}
	if file.Job != "job" || file.Stage != "stage" || file.Name != "main" ||
		file.Version != model.NewMembers(file.Workers, list, model.Unplaced{}).Version() {
		t.Fatalf("not one list: %+v", file)
	}
	return file
}

// A worker finds the members of its gang before it starts. A reader sees every new list, or
// the one before, and never a part of one. The file ends with the worker, and the last worker
// ends the calls of the agent.
func TestGangFile(t *testing.T) {
	g := newGangList(3, member(0, ""), member(1, ""))
	dir := agentDir(t)
	a, c, _ := gangAgent(t, g, dir, Config{})
	out, gate := newFIFO(t), newFIFO(t)
	script := `(echo "$BERTH_WORKERS $BERTH_GANG_FILE"; cat "$BERTH_GANG_FILE") >` + out.path + `; read go <` + gate.path
	for index := range int32(2) {
		mustSubmit(t, a, inGang(index, 3, "sh", "-c", script))
		if got, want := out.line(t), "3 "+gangFile(dir, index); got != want {
			t.Errorf("variables %q, want %q", got, want)
		}
		if file := parseGang(t, out.line(t)); file.Workers != 3 || len(file.Members) != 2 ||
			file.Members[1] != (fileMember{1, 1, "host-1", "host-1"}) {
			t.Errorf("worker %d: %+v", index, file)
		}
		if info, err := os.Stat(gangFile(dir, index)); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	for n := range 20 {
		suffix := fmt.Sprint(".", n)
		g.set(nil, member(0, suffix), member(1, suffix), member(2, suffix))
		for index := range int32(2) {
			for file := (membersFile{}); len(file.Members) < 3 || file.Members[2].Host != "host-2"+suffix; {
				file = readGang(t, gangFile(dir, index))
			}
		}
	}
	g.await(t, 1)
	// A worker that is not a member any more keeps its list.
	g.set(nil, member(1, ".last"), member(2, ".last"))
	for file := (membersFile{}); file.Version != g.members.Cursor; {
		file = readGang(t, gangFile(dir, 1))
	}
	if file := readGang(t, gangFile(dir, 0)); len(file.Members) != 3 {
		t.Errorf("a worker that is being stopped: %+v", file)
	}
	for index := range 2 {
		gate.write(t, "go\n")
		c.await(t, "an end", func() bool { return ended(c) == index+1 })
	}
	g.await(t, 0)
	for index := range int32(2) {
		if _, err := os.Stat(gangFile(dir, index)); !os.IsNotExist(err) {
			t.Errorf("the file of an ended worker: %v", err)
		}
	}
}

// ended returns the number of workers that have ended.
func ended(c *control) (n int) {
	for _, w := range c.workers {
		if w.State == berthv1.Assignment_COMPLETED {
			n++
		}
	}
	return n
}

// A worker that is alone needs no call. A worker of an older control plane, which does not
// know the call, and a worker of a huge gang start without the file.
func TestGangFileWithoutCalls(t *testing.T) {
	g := newGangList(1)
	dir := agentDir(t)
	a, c, _ := gangAgent(t, g, dir, Config{Address: "10.0.0.7:7200"})
	out := newFIFO(t)
	mustSubmit(t, a, inGang(0, 1, "sh", "-c", `cat "$BERTH_GANG_FILE" >`+out.path))
	if file := parseGang(t, out.line(t)); file.Workers != 1 || len(file.Members) != 1 ||
		file.Members[0] != (fileMember{0, 1, "host", "10.0.0.7"}) {
		t.Errorf("alone: %+v", file)
	}
	without := `[ -z "$BERTH_GANG_FILE" ] && echo "$BERTH_WORKERS" >` + out.path
	mustSubmit(t, a, inGang(1, maxGang+1, "sh", "-c", without))
	if got := out.line(t); got != fmt.Sprint(maxGang+1) {
		t.Errorf("in a huge gang: %q", got)
	}
	older := inGang(2, 0, "sh", "-c", without)
	older.Reservation = ""
	mustSubmit(t, a, older)
	if got := out.line(t); got != "" {
		t.Errorf("of an older assigner: %q", got)
	}
	c.await(t, "the ends", func() bool { return ended(c) == 3 })
	if g.calls != 0 || len(g.invalid) > 0 {
		t.Error("the agent listed members")
	}

	old, _, _ := runProcesses(t, ProcessConfig{Dir: agentDir(t), Allow: []string{AllowAll}})
	mustSubmit(t, old, inGang(0, 2, "sh", "-c", without))
	if got := out.line(t); got != "2" {
		t.Errorf("with an older control plane: %q", got)
	}
}

// While the members are not known, a start waits without a permit: other workers start. It
// begins once the list has the worker, fails with the reason when its time is over, and can be
// stopped.
func TestAStartWaitsForItsGang(t *testing.T) {
	g := newGangList(3, member(1, ""))
	g.err = fault.New(fault.Unavailable, fault.ReasonUnavailable, "the assigner has no leader")
	a, c, _ := gangAgent(t, g, agentDir(t), Config{Starts: 1})
	limit := func(answer, start time.Duration) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cfg.startWait, a.cfg.StartTimeout = answer, start
	}
	// begin requests a start that cannot begin, and returns when the agent has answered so.
	begin := func(index int32) *controlv1.SubmitTaskRequest {
		t.Helper()
		limit(time.Millisecond, time.Hour)
		req := inGang(index, 3, "true")
		mustBe(t, a, req, berthv1.Assignment_STARTING)
		limit(time.Minute, time.Hour)
		return req
	}
	begin(0)
	mustSubmit(t, a, submit(5, 1, "true"))
	c.awaitState(t, key(5), "COMPLETED")
	g.set(nil, member(1, "")) // without the worker
	a.mu.Lock()
	queued := len(a.startQueue)
	a.mu.Unlock()
	if queued != 1 {
		t.Fatalf("%d starts wait", queued)
	}
	g.set(nil, member(0, ""), member(1, ""))
	c.awaitState(t, key(0), "COMPLETED")

	g.set(fault.New(fault.Unavailable, fault.ReasonUnavailable, "the assigner has no leader"))
	limit(time.Minute, time.Millisecond)
	if _, err := trySubmit(t.Context(), a, inGang(1, 3, "true")); !fault.Is(err, fault.ReasonStartFailed) ||
		!strings.Contains(err.Error(), "the members of the gang job/stage/main are not known") {
		t.Errorf("after its time: %v", err)
	}
	stop, err := tryStop(t.Context(), a, stopOf(begin(2), time.Second))
	if err != nil || stop.Worker.State != berthv1.Assignment_EVICTED {
		t.Errorf("stopped while it waits: %v, %v", stop, err)
	}
	g.await(t, 0)
}

// The next agent continues to follow the members for the workers that it adopts. If it cannot
// write a file, it tries again.
func TestGangFileOfAnAdoptedWorker(t *testing.T) {
	g := newGangList(2, member(0, ""), member(1, ""))
	dir := agentDir(t)
	a, c, stop := gangAgent(t, g, dir, Config{})
	gate := newFIFO(t)
	mustSubmit(t, a, inGang(0, 2, "sh", "-c", "read go <"+gate.path))
	stop()
	g.set(nil, member(0, ""), member(1, ".new"))
	obstacle := gangFile(dir, 0) + ".new"
	if err := os.MkdirAll(filepath.Join(obstacle, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	next, _, _ := runProcessesIn(t, c, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, Config{})
	for failed := false; !failed; {
		next.mu.Lock()
		for _, followed := range next.gangs {
			failed = followed.unwritten
		}
		next.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if file := readGang(t, gangFile(dir, 0)); file.Version == g.members.Cursor {
		t.Fatal("the file was written")
	}
	if err := os.RemoveAll(obstacle); err != nil {
		t.Fatal(err)
	}
	for file := (membersFile{}); file.Version != g.members.Cursor; {
		file = readGang(t, gangFile(dir, 0))
	}
	gate.write(t, "go\n")
	c.awaitState(t, key(0), "COMPLETED")
	g.await(t, 0)
}

// TestGangFileSaysWhatBecameOfEachIndex checks that a program which reads the file can decide whether all
// workers are placed, or will be, and that the version does not change when a worker ends for good: the
// others must not begin anew.
func TestGangFileSaysWhatBecameOfEachIndex(t *testing.T) {
	key := model.Key{Job: "job", Stage: "stage", Name: model.MainName}
	list := []model.Member{member(0, ""), member(1, "")}
	file := func(workers int, u model.Unplaced) membersFile {
		return parseGang(t, string(encodeMembers(key, model.NewMembers(workers, list, u))))
	}
	placed := file(2, model.Unplaced{})
	if placed.Waiting == nil || placed.Ended == nil || placed.GaveUp == nil || len(placed.Waiting) != 0 {
		t.Errorf("all are placed: %+v", placed)
	}
	one := model.Indexes{{First: 1, Last: 1}}
	if ended := file(2, model.Unplaced{Ended: one}); ended.Version != placed.Version ||
		ended.Ended[0] != (fileRange{1, 1}) {
		t.Errorf("one has ended: %+v, before %+v", ended, placed)
	}
	if gaveUp := file(2, model.Unplaced{GaveUp: one}); gaveUp.Version != placed.Version || len(gaveUp.GaveUp) != 1 {
		t.Errorf("one was given up: %+v, before %+v", gaveUp, placed)
	}
	rest := model.Indexes{{First: 2, Last: 3}}
	if waiting := file(4, model.Unplaced{Waiting: rest}); waiting.Version == placed.Version ||
		waiting.Waiting[0] != (fileRange{2, 3}) {
		t.Errorf("some wait: %+v", waiting)
	}
	if old := file(4, model.Unplaced{}); old.Waiting != nil || old.Ended != nil || old.GaveUp != nil {
		t.Errorf("an older control plane does not say what became of indexes 2 and 3: %+v", old)
	}
}
