package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// Gangs is an optional interface of a Driver. If a driver implements it, the agent gives each
// worker the members of its gang: Spec.Members before the start, and SetMembers later.
type Gangs interface {
	// SetMembers replaces the members of the gang of a worker. The driver ignores a worker that
	// has ended. It calls SetMembers for one worker at a time.
	SetMembers(worker Handle, members []byte) error
}

const (
	// membersWait is how long a call waits for a change. membersTimeout is how long any call
	// may take in addition.
	membersWait    = time.Minute
	membersTimeout = 10 * time.Second
	// membersRetry is the longest pause between two attempts while a start waits for the
	// members. membersPause is the longest pause otherwise: a control plane that is overloaded
	// must not get a call of each host every second.
	membersRetry, membersPause = time.Second, 30 * time.Second
	// maxGang is the number of workers up to which they have the members of their gang. Each of
	// n workers has a file with n members, which its host fetches when the gang starts: 64 Mi
	// members are about 3 GB for the network, and twice as much for the disks.
	maxGang = wire.MaxGang
)

// errUnregistered is the error of a call before the agent has registered.
var errUnregistered = errors.New("the agent is not registered")

// gang has the workers of this executor that belong to one gang, and its members. One
// goroutine follows the members as long as the gang has a worker here. Agent.mu guards the
// fields.
type gang struct {
	agent *Agent
	key   model.Key
	// workers has the workers here that are starting or have not ended.
	workers map[identity]bool
	// members is nil until they are known, and text is the content of the file.
	members *model.Members
	text    []byte
	// without is set while the control plane lists no members for this gang: workers then
	// start without them.
	without bool
	// err is the error of the last call. unwritten is set while a worker has not got the members
	// because its file could not be written.
	err       error
	unwritten bool
	// leave ends the goroutine. interrupt ends its call in progress if that waits for a change,
	// and wake ends its pause.
	leave, interrupt context.CancelFunc
	wake             chan struct{}
	// writing is locked while files are written, so that an old list never replaces a new one.
	writing sync.Mutex
}

// joinGang adds a worker to its gang. It returns nil if the worker is alone on a host, the gang is too
// large, or neither the driver nor the cell needs the members. a.mu must be locked.
func (a *Agent) joinGang(spec Spec) *gang {
	key := model.Key{Job: spec.Worker.Job, Stage: spec.Worker.Stage, Name: spec.Reservation}
	_, isDriver := a.cfg.Driver.(Gangs)
	cell, isCell := a.cfg.Cell.(CellGangs)
	switch {
	case isCell && spec.Workers > maxGang:
		a.requests.Go(func() { cell.GangChanged(key, model.NewMembers(int(spec.Workers), nil, model.Unplaced{})) })
		return nil
	case !isDriver && !isCell, spec.Workers > maxGang, spec.Workers < 2 && !isCell, spec.Workers < 1:
		return nil
	}
	g := a.gangs[key]
	if g == nil {
		g = &gang{agent: a, key: key, workers: map[identity]bool{}, interrupt: func() {},
			wake: make(chan struct{}, 1)}
		var ctx context.Context
		ctx, g.leave = context.WithCancel(a.life)
		a.gangs[key] = g
		a.requests.Go(func() { g.follow(ctx) })
	}
	g.workers[spec.identity()] = true
	return g
}

// leaveGang removes a worker that has ended, or does not start, from its gang. a.mu must be
// locked.
func (a *Agent) leaveGang(id identity) {
	for key, g := range a.gangs {
		if g.workers[id] {
			delete(g.workers, id)
			if len(g.workers) == 0 {
				g.leave()
				delete(a.gangs, key)
			}
		}
	}
}

// awaitMembers makes a queued start wait until the members of its gang include its worker.
// a.mu must be locked.
func (a *Agent) awaitMembers(s *start) {
	if s.gang = a.joinGang(s.spec); s.gang == nil || s.gang.admits(s) {
		return
	}
	s.gang.hurry()
	limit := a.cfg.StartTimeout
	if s.spec.StartLimit > 0 {
		limit = min(limit, s.spec.StartLimit)
	}
	s.members = time.AfterFunc(limit, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if at := slices.Index(a.startQueue, s); at >= 0 && !s.gang.admits(s) {
			why := startFailed("the members of the gang %s are not known", s.gang.key)
			if s.gang.err != nil {
				why = startFailed("the members of the gang %s are not known: %v", s.gang.key, s.gang.err)
			}
			a.startQueue = slices.Delete(a.startQueue, at, at+1)
			a.counts.failedStarts++
			a.log.Warn("worker not started", "worker", s.spec.Worker, "epoch", s.spec.Epoch, "error", why)
			a.settle(s, why)
		}
	})
}

// hurry makes the goroutine make the next call at once. a.mu must be locked.
func (g *gang) hurry() {
	g.interrupt()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// admits reports whether a start need not wait for the members.
func (g *gang) admits(s *start) bool {
	return g == nil || g.without || s.spec.cell || g.members != nil && g.members.Has(s.spec.Worker.ID)
}

// setMembers sets the members with which a start begins. a.mu must be locked.
func (a *Agent) setMembers(s *start) {
	g := s.gang
	switch {
	case g == nil:
		if _, ok := a.cfg.Driver.(Gangs); ok && s.spec.Workers == 1 {
			self := &model.Executor{Address: a.cfg.Address}
			own := model.Member{ID: s.spec.Worker.ID, Executor: a.cfg.ID, Host: self.DialHost()}
			alone := model.NewMembers(1, []model.Member{own}, model.Unplaced{})
			key := model.Key{Job: s.spec.Worker.Job, Stage: s.spec.Worker.Stage, Name: s.spec.Reservation}
			s.spec.Members = encodeMembers(key, alone)
		}
	case g.members != nil && g.members.Has(s.spec.Worker.ID):
		s.spec.Members, s.cursor = g.text, g.members.Cursor
		s.spec.Workers = int32(g.members.Workers) // in a cell, the request has less than the whole gang
	}
}

// waited reports whether a queued start waits for members that the gang does not have. a.mu
// must be locked.
func (g *gang) waited() bool {
	return slices.ContainsFunc(g.agent.startQueue, func(s *start) bool { return s.gang == g && !g.admits(s) })
}

// follow lists the members and follows their changes until ctx ends.
func (g *gang) follow(ctx context.Context) {
	a := g.agent
	retry, rest := pause{first: 10 * time.Millisecond, last: membersRetry}, pause{first: time.Second, last: membersPause}
	for ctx.Err() == nil {
		a.mu.Lock()
		cursor := ""
		if g.members != nil && !g.waited() && !g.unwritten {
			cursor = g.members.Cursor
		}
		calling, interrupt := context.WithCancel(ctx)
		if g.interrupt = interrupt; cursor == "" {
			g.interrupt = func() {} // the call does not wait
		}
		a.mu.Unlock()
		members, err := a.listMembers(calling, g.key, cursor)
		interrupted := calling.Err() != nil
		interrupt()
		if ctx.Err() != nil || interrupted {
			continue
		}
		waited := g.listed(members, err)
		written := err == nil && g.write()
		switch {
		case waited, errors.Is(err, errUnregistered):
			sleep(ctx, retry.advance(), g.wake)
		case !written:
			sleep(ctx, rest.advance(), g.wake)
		case members.Cursor == cursor:
			sleep(ctx, retry.advance(), g.wake) // a control plane that does not wait must not keep the agent busy
		default:
			retry.reset()
			rest.reset()
		}
	}
}

// listed stores the result of a call and begins the starts that waited for it. It reports
// whether a start still waits.
func (g *gang) listed(members *model.Members, err error) (waited bool) {
	a := g.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	known := g.err != nil
	g.err = err
	switch {
	case err == nil:
		g.members, g.text = members, encodeMembers(g.key, members)
	case !known && !errors.Is(err, errUnregistered):
		a.log.Warn("the members of a gang cannot be listed", "gang", g.key, "error", err)
	}
	// The control plane is older than the call, or the gang is too large.
	g.without = status.Code(err) == codes.Unimplemented || fault.Is(err, fault.ReasonUnsupported)
	a.startNext()
	return g.waited()
}

// write gives the newest members to the workers that have older ones, and reports whether all
// of them have got them. A worker that is not a member any more, because it is being stopped,
// keeps its own.
func (g *gang) write() bool {
	g.writing.Lock()
	defer g.writing.Unlock()
	a := g.agent
	a.mu.Lock()
	members, text := g.members, g.text
	if cell, ok := a.cfg.Cell.(CellGangs); ok {
		a.mu.Unlock()
		cell.GangChanged(g.key, members)
		return true
	}
	var old []*worker
	for id := range g.workers {
		w := a.workers[id]
		if w != nil && w.members != "" && w.members != members.Cursor && members.Has(id.ID) {
			old = append(old, w)
		}
	}
	a.mu.Unlock()
	written := map[*worker]bool{}
	for _, w := range old {
		err := a.cfg.Driver.(Gangs).SetMembers(w.handle, text)
		if written[w] = err == nil; err != nil {
			a.log.Error("the members of a gang are not written", "gang", g.key, "error", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g.unwritten = false
	for w, done := range written {
		if done {
			w.members = members.Cursor
		}
		g.unwritten = g.unwritten || !done
	}
	return !g.unwritten
}

// listMembers lists the members of a gang. With a cursor it waits for a change.
func (a *Agent) listMembers(ctx context.Context, key model.Key, cursor string) (*model.Members, error) {
	a.mu.Lock()
	request := &controlv1.GangMembersRequest{Id: a.cfg.ID, Incarnation: a.ledger.incarnation, Nonce: a.ledger.nonce,
		Request: &berthv1.ListMembersRequest{Job: key.Job, Stage: key.Stage, Name: key.Name, Cursor: cursor}}
	a.mu.Unlock()
	if request.Incarnation == 0 {
		return nil, errUnregistered
	}
	timeout := membersTimeout
	if cursor != "" {
		request.Request.WaitSeconds = proto.Int32(int32(membersWait / time.Second))
		timeout += membersWait
	}
	var list []model.Member
	var unplaced model.Unplaced
	for first := ""; ; {
		page, err := a.membersPage(ctx, request, timeout)
		if err != nil {
			return nil, err
		}
		if first != "" && page.GetCursor() != first {
			// The list has changed between two pages. The next one need not wait.
			request.Request.PageToken, request.Request.Cursor, list, first = "", "", nil, ""
			continue
		}
		if first == "" {
			unplaced = model.Unplaced{Waiting: wire.Indexes(page.GetWaiting()), Ended: wire.Indexes(page.GetEnded()),
				GaveUp: wire.Indexes(page.GetGaveUp())}
		}
		first = page.GetCursor()
		for _, m := range page.GetMembers() {
			list = append(list, model.Member{ID: model.WorkerID{Index: m.GetIndex(), Number: m.GetNumber()},
				Executor: m.GetExecutor(), Host: m.GetHost()})
		}
		if err := checkMembers(first, list, unplaced); err != nil {
			return nil, err
		}
		if request.Request.PageToken = page.GetNextPageToken(); request.Request.PageToken == "" {
			return &model.Members{Workers: int(page.GetWorkers()), List: list, Unplaced: unplaced, Cursor: first}, nil
		}
	}
}

func (a *Agent) membersPage(ctx context.Context, request *controlv1.GangMembersRequest,
	timeout time.Duration) (*berthv1.ListMembersAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return controlv1.NewGangsClient(a.cfg.Conn).ListMembers(ctx, request, grpc.WaitForReady(true))
}

// checkMembers checks that a list has a cursor, is in order, and has no more members and ranges than a
// gang may have.
func checkMembers(cursor string, list []model.Member, u model.Unplaced) error {
	ordered := slices.IsSortedFunc(list, func(a, b model.Member) int { return a.ID.Compare(b.ID) })
	if cursor == "" || !ordered || max(len(list), len(u.Waiting), len(u.Ended), len(u.GaveUp)) > model.MaxWorkers {
		return fmt.Errorf("the answer of the control plane is invalid: cursor %q, %d members, in order: %v", cursor, len(list),
			ordered)
	}
	return nil
}

// membersFile is the content of the file that BERTH_GANG_FILE names.
type membersFile struct {
	Job     string `json:"job"`
	Stage   string `json:"stage"`
	Name    string `json:"name"`
	Workers int    `json:"workers"`
	// Version differs if Workers or Members differ.
	Version string       `json:"version"`
	Members []fileMember `json:"members"`
	// Waiting, Ended and GaveUp have the indexes whose latest worker is not placed. They are missing
	// if the control plane is too old to say so.
	Waiting []fileRange `json:"waiting,omitzero"`
	Ended   []fileRange `json:"ended,omitzero"`
	GaveUp  []fileRange `json:"gaveUp,omitzero"`
}

type fileRange struct {
	First int32 `json:"first"`
	Last  int32 `json:"last"`
}

type fileMember struct {
	Index    int32  `json:"index"`
	Number   int32  `json:"number"`
	Executor string `json:"executor"`
	Host     string `json:"host"`
}

func encodeMembers(key model.Key, m *model.Members) []byte {
	file := membersFile{Job: key.Job, Stage: key.Stage, Name: key.Name, Workers: m.Workers, Version: m.Version(),
		Members: make([]fileMember, len(m.List))}
	for i, one := range m.List {
		file.Members[i] = fileMember{one.ID.Index, one.ID.Number, one.Executor, one.Host}
	}
	if len(m.List) >= m.Workers || !m.Unplaced.IsEmpty() {
		file.Waiting, file.Ended, file.GaveUp = fileRanges(m.Waiting), fileRanges(m.Ended), fileRanges(m.GaveUp)
	}
	// A struct of texts and numbers always marshals.
	text, _ := json.Marshal(file)
	return append(text, '\n')
}

// fileRanges returns ranges that are not nil, so that the file has an empty list.
func fileRanges(indexes model.Indexes) []fileRange {
	ranges := make([]fileRange, len(indexes))
	for i, r := range indexes {
		ranges[i] = fileRange(r)
	}
	return ranges
}
