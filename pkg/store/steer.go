package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// steerWithin is how long a call may take until members are suspected: a leader
	// of Berth gives an attempt at a write no more.
	steerWithin = 300 * time.Millisecond
	// steerProbe is how long a member that is suspected has to answer a read that asks
	// the leader. It is longer than a healthy one takes that lost one message to the
	// leader, which it repeats after 500 ms.
	steerProbe = time.Second
	// steerFast is how fast another has to answer for that to be the member's own
	// fault, and not that of an etcd, or of a process, that is slow as a whole.
	steerFast = steerProbe / 4
	// steerSettles is what the client has until it asks those that it is told to:
	// it is told behind its back.
	steerSettles = 100 * time.Millisecond
	// steerReads lies between two reads, steerEvery between two looks at the members.
	steerReads = time.Second
	steerEvery = 2 * time.Second
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
// until all answer. Those that do not, while another is fast, are left out
// meanwhile, and watches move on to another.
type steer struct {
	all   []string
	use   func(endpoints ...string)
	read  func(ctx context.Context) error                  // of the next member
	probe func(ctx context.Context, endpoint string) error // of this one

	ctx    context.Context
	stop   context.CancelFunc
	owned  sync.WaitGroup
	mu     sync.Mutex
	active bool          // a look is under way, or some are left out
	left   chan struct{} // closed and replaced when one more is left out
}

func newSteer(client *clientv3.Client, cfg clientv3.Config) *steer {
	s := &steer{all: slices.Clone(cfg.Endpoints), use: client.SetEndpoints, left: make(chan struct{})}
	s.probe = func(ctx context.Context, endpoint string) error {
		one := cfg
		one.Endpoints, one.DialTimeout = []string{endpoint}, steerProbe
		alone, err := clientv3.New(one)
		if err != nil {
			return err
		}
		defer alone.Close()
		if _, err = alone.Get(clientv3.WithRequireLeader(ctx), probeKey); refused(err) {
			return nil
		}
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

// refused says whether an error is an answer, such as that the key may not be read.
func refused(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.InvalidArgument
}

// patrol reads of one member after the other.
func (s *steer) patrol() {
	for Sleep(s.ctx, steerReads) == nil {
		ctx, cancel := context.WithTimeout(s.ctx, steerWithin)
		if s.read(ctx) != nil && ctx.Err() != nil {
			s.suspect()
		}
		cancel()
	}
}

// suspect is told of a call that ran into its deadline.
func (s *steer) suspect() {
	if len(s.all) < 2 {
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
	using, again := s.all, false
	for s.ctx.Err() == nil {
		answering := s.answering()
		switch fewer := slices.ContainsFunc(using, func(endpoint string) bool { return !slices.Contains(answering, endpoint) }); {
		case !slices.Equal(answering, using):
			s.use(answering...)
			_ = Sleep(s.ctx, steerSettles) // the loop looks at ctx
			if using, again = answering, fewer; fewer {
				s.leave()
			}
		case again: // once more, for who was faster than the client
			again = false
			s.leave()
		}
		done := len(using) == len(s.all)
		_ = Sleep(s.ctx, steerEvery)
		if done {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = false
}

// leave tells those who watch that somebody is left out.
func (s *steer) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.left)
	s.left = make(chan struct{})
}

// leaving is closed when one more member is left out.
func (s *steer) leaving() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// answering are the members that answer in time, in the order of all, and all of
// them where nobody is fast.
func (s *steer) answering() []string {
	ctx, cancel := context.WithTimeout(s.ctx, steerProbe)
	defer cancel()
	took := make([]time.Duration, len(s.all))
	var asked sync.WaitGroup
	for i, endpoint := range s.all {
		asked.Go(func() {
			began := time.Now()
			if took[i] = steerProbe; s.probe(ctx, endpoint) == nil {
				took[i] = time.Since(began)
			}
		})
	}
	asked.Wait()
	if slices.Min(took) > steerFast {
		return s.all
	}
	var list []string
	for i, endpoint := range s.all {
		if took[i] < steerProbe {
			list = append(list, endpoint)
		}
	}
	return list
}

// close ends it and waits for that.
func (s *steer) close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.owned.Wait()
}
