package store

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// steerWithin is how long a member has to answer a read that asks the leader.
	// One that takes longer than that while others do not is no help to anybody:
	// a leader of Berth gives an attempt at a write no more.
	steerWithin = 300 * time.Millisecond
	// steerSettles is what the client has until it asks those that it is told to:
	// it is told behind its back.
	steerSettles = 100 * time.Millisecond
	// steerEvery lies between two looks at the members, and between two reads.
	steerEvery = time.Second
)

// steer keeps calls away from members of etcd that take them and do not answer,
// while others do: a member whose disk hangs, that is frozen, or of whose link to
// the others one direction is cut. The client asks all members in turn, whatever
// they answer, so that every third call would run into its deadline for as long as
// that lasts. A member that knows that it is cut off says so by itself (see asking).
//
// A read each second, of one member after the other, finds out, for processes that
// only watch too: such a member may not hear of what is written. What is not
// answered has every member be asked over a connection of its own, again and again
// until all answer; those that do not are left out meanwhile, unless none does, and
// watches move on to another.
type steer struct {
	all   []string
	use   func(endpoints ...string)
	read  func(ctx context.Context) error                  // of the next member
	probe func(ctx context.Context, endpoint string) error // of this one
	every time.Duration

	ctx    context.Context
	stop   context.CancelFunc
	owned  sync.WaitGroup
	mu     sync.Mutex
	active bool          // a look is under way, or some are left out
	left   chan struct{} // closed and replaced when one more is left out
}

func newSteer(client *clientv3.Client, cfg clientv3.Config) *steer {
	s := &steer{all: slices.Clone(cfg.Endpoints), use: client.SetEndpoints, every: steerEvery, left: make(chan struct{})}
	s.probe = func(ctx context.Context, endpoint string) error {
		one := cfg
		one.Endpoints, one.DialTimeout = []string{endpoint}, steerWithin
		alone, err := clientv3.New(one)
		if err != nil {
			return err
		}
		defer alone.Close()
		_, err = alone.Get(clientv3.WithRequireLeader(ctx), probeKey)
		return err
	}
	s.read = func(ctx context.Context) error {
		_, err := client.Get(clientv3.WithRequireLeader(ctx), probeKey)
		return err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if len(s.all) > 1 {
		s.owned.Go(s.patrol)
	}
	return s
}

// patrol reads of one member after the other.
func (s *steer) patrol() {
	for Sleep(s.ctx, s.every) == nil {
		ctx, cancel := context.WithTimeout(s.ctx, steerWithin)
		if s.read(ctx) != nil && ctx.Err() != nil {
			s.suspect()
		}
		cancel()
	}
}

// suspect is told of a call that ran into its deadline.
func (s *steer) suspect() {
	if s == nil || len(s.all) < 2 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active || s.ctx.Err() != nil {
		return
	}
	s.active = true
	s.owned.Go(s.look)
}

// look leaves out who does not answer until everybody does.
func (s *steer) look() {
	using := s.all
	for s.ctx.Err() == nil {
		answering := s.answering()
		if len(answering) == 0 {
			answering = s.all // who is to blame is not among the members
		}
		if !slices.Equal(answering, using) {
			s.use(answering...)
			_ = Sleep(s.ctx, steerSettles) // the loop looks at ctx
			s.leave(using, answering)
			using = answering
		}
		done := len(using) == len(s.all)
		_ = Sleep(s.ctx, s.every) // the loop looks at ctx
		if done {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = false
}

// leave tells those who watch if somebody is left out who was not.
func (s *steer) leave(before, now []string) {
	if !slices.ContainsFunc(before, func(endpoint string) bool { return !slices.Contains(now, endpoint) }) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.left)
	s.left = make(chan struct{})
}

// leaving is closed when one more member is left out.
func (s *steer) leaving() <-chan struct{} {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// answering are the members that answer in time, in the order of all.
func (s *steer) answering() []string {
	ctx, cancel := context.WithTimeout(s.ctx, steerWithin)
	defer cancel()
	answered := make([]bool, len(s.all))
	var asked sync.WaitGroup
	for i, endpoint := range s.all {
		asked.Go(func() { answered[i] = s.probe(ctx, endpoint) == nil })
	}
	asked.Wait()
	var list []string
	for i, endpoint := range s.all {
		if answered[i] {
			list = append(list, endpoint)
		}
	}
	return list
}

// close ends it and waits for that.
func (s *steer) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.owned.Wait()
}
