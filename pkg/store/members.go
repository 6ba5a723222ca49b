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
	// suspectAfter is how long a patrol read may take before the monitor probes all members.
	// It is equal to the timeout of a leader's first attempt at a write.
	suspectAfter = 300 * time.Millisecond
	// probeTimeout is the time within which a probed member must answer a linearizable read.
	// A healthy member that lost one message to the leader repeats the message after 500 ms.
	probeTimeout = time.Second
	// fastAnswer is the time within which at least one member must answer before the monitor
	// excludes other members. If no member is that fast, all of etcd or this process is
	// slow.
	fastAnswer = probeTimeout / 4
	// settleTime is how long the client may need to switch to a new set of members. The
	// client switches asynchronously.
	settleTime = 100 * time.Millisecond
	// readEvery is the time between two patrol reads. probeEvery is the time between two
	// probes of all members.
	readEvery  = time.Second
	probeEvery = 2 * time.Second
)

// memberMonitor keeps calls away from etcd members that accept calls but do not answer,
// as long as other members answer. Such a member has a hanging disk, is frozen, or its
// link to the others is cut in one direction. The client calls all members in turn, so
// without the monitor every third call would last until its deadline. A member that knows
// that it is cut off refuses calls by itself (see callContext).
//
// The monitor reads from one member after the other, once a second. So it detects such
// members also in processes that only watch, whose member may not receive new writes.
// After a timeout of any call the monitor probes every member over a separate connection
// until all members answer. During this time it excludes members that do not answer while
// another member is fast, and watches move to other members.
type memberMonitor struct {
	all   []string
	use   func(endpoints ...string)
	read  func(ctx context.Context) error                  // from the next member
	probe func(ctx context.Context, endpoint string) error // this member

	ctx       context.Context
	stop      context.CancelFunc
	owned     sync.WaitGroup
	mu        sync.Mutex
	active    bool          // members are being probed
	exclusion chan struct{} // closed and replaced when a member is excluded
}

func newMemberMonitor(client *clientv3.Client, cfg clientv3.Config, password func() string) *memberMonitor {
	m := &memberMonitor{all: slices.Clone(cfg.Endpoints), use: client.SetEndpoints, exclusion: make(chan struct{})}
	m.probe = func(ctx context.Context, endpoint string) error {
		one := cfg
		one.Endpoints, one.DialTimeout = []string{endpoint}, probeTimeout
		alone, err := newClient(one, password)
		if err != nil {
			return err
		}
		defer alone.Close()
		if _, err = alone.Get(clientv3.WithRequireLeader(ctx), probeKey); refused(err) {
			return nil
		}
		return err
	}
	m.read = func(ctx context.Context) error {
		_, err := client.Get(clientv3.WithRequireLeader(ctx), probeKey)
		return err
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	if len(m.all) > 1 {
		m.owned.Go(m.patrol)
	}
	return m
}

// refused reports whether an error is an answer of the member, for example that the
// credentials do not permit the read.
func refused(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.InvalidArgument
}

// patrol reads from one member after the other until the monitor is closed.
func (m *memberMonitor) patrol() {
	for Sleep(m.ctx, readEvery) == nil {
		ctx, cancel := context.WithTimeout(m.ctx, suspectAfter)
		if m.read(ctx) != nil && ctx.Err() != nil {
			m.suspect()
		}
		cancel()
	}
}

// suspect starts to probe all members. It must be called after a call has timed out.
func (m *memberMonitor) suspect() {
	if len(m.all) < 2 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active || m.ctx.Err() != nil {
		return
	}
	m.active = true
	m.owned.Go(m.probeAll)
}

// probeAll excludes members that do not answer, until all members answer.
func (m *memberMonitor) probeAll() {
	using, notifyAgain := m.all, false
	for m.ctx.Err() == nil {
		answering := m.answering()
		switch fewer := slices.ContainsFunc(using, func(endpoint string) bool {
			return !slices.Contains(answering,
				endpoint)
		}); {
		case !slices.Equal(answering, using):
			m.use(answering...)
			_ = Sleep(m.ctx, settleTime) // the loop checks ctx
			if using, notifyAgain = answering, fewer; fewer {
				m.notify()
			}
		case notifyAgain: // for a watch that moved before the client had switched
			notifyAgain = false
			m.notify()
		}
		done := len(using) == len(m.all)
		_ = Sleep(m.ctx, probeEvery)
		if done {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = false
}

// notify makes the watches move to other members.
func (m *memberMonitor) notify() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.exclusion)
	m.exclusion = make(chan struct{})
}

// excluded returns a channel that is closed when the monitor excludes another member.
func (m *memberMonitor) excluded() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exclusion
}

// answering probes all members and returns those that answer within probeTimeout, in the
// order of m.all. If no member is fast, it returns all members.
func (m *memberMonitor) answering() []string {
	ctx, cancel := context.WithTimeout(m.ctx, probeTimeout)
	defer cancel()
	took := make([]time.Duration, len(m.all))
	var probes sync.WaitGroup
	for i, endpoint := range m.all {
		probes.Go(func() {
			began := time.Now()
			if took[i] = probeTimeout; m.probe(ctx, endpoint) == nil {
				took[i] = time.Since(began)
			}
		})
	}
	probes.Wait()
	if slices.Min(took) > fastAnswer {
		return m.all
	}
	var list []string
	for i, endpoint := range m.all {
		if took[i] < probeTimeout {
			list = append(list, endpoint)
		}
	}
	return list
}

// close stops the monitor and waits for its goroutines.
func (m *memberMonitor) close() {
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.owned.Wait()
}
