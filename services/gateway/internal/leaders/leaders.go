// Package leaders lists the leader and all replicas of each service, and makes a leader
// resign. A replica that does not answer never makes a list fail: after a bounded wait, the
// list shows the replica as UNREACHABLE, with the cause. The package calls every replica to find
// the leader, and keeps the newest answers for other packages.
package leaders

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Server answers berth.v1.Leaders.
type Server struct {
	berthv1.UnimplementedLeadersServer
	// Patience is how long a replica may take to answer before it counts as unreachable. The
	// default is one second. Patience must be set before the first call.
	Patience time.Duration
	// Gateway, if set, returns why this gateway is not ready, and the ID of the etcd cluster that
	// it reads. It must be set before the first call.
	Gateway  func() (notReady []string, etcdCluster string)
	replicas []replica

	mu sync.Mutex
	// last has the newest answers in the order of replicas, or nil before the first ones.
	last []*berthv1.Replica
}

type replica struct {
	service, address string
	conn             *grpc.ClientConn
}

// New connects to the replicas of each service. The replicas need not answer yet.
func New(addresses map[string][]string, security *tls.Config) (*Server, error) {
	s := &Server{Patience: time.Second}
	for _, service := range model.Services {
		for _, address := range addresses[service] {
			conn, err := rpc.Dial([]string{address}, rpc.DialOptions{FailFast: true, TLS: security})
			if err != nil {
				s.Close()
				return nil, err
			}
			s.replicas = append(s.replicas, replica{service, address, conn})
		}
	}
	return s, nil
}

// Close closes the connections.
func (s *Server) Close() error {
	var errs []error
	for _, r := range s.replicas {
		errs = append(errs, r.conn.Close())
	}
	return errors.Join(errs...)
}

// Poll calls all replicas, for Reach and Last.
func (s *Server) Poll(ctx context.Context) { s.askAll(ctx) }

// Last returns the newest answers of the replicas of a service, or nil before the first call. The
// caller must not change them.
func (s *Server) Last(service string) []*berthv1.Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*berthv1.Replica
	for i, a := range s.last {
		if s.replicas[i].service == service {
			list = append(list, a)
		}
	}
	return list
}

// Reach returns which replicas of a service answered the last call, and why the others did not.
// The zero value means that no call has ended yet.
func (s *Server) Reach(service string) rpc.Reach {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach(service, s.last)
}

// reach returns what answers, if they are known, show about a service.
func (s *Server) reach(service string, answers []*berthv1.Replica) (reach rpc.Reach) {
	for i, a := range answers {
		switch {
		case s.replicas[i].service != service:
		case a.GetRole() == berthv1.Replica_UNREACHABLE:
			reach.Unreached = append(reach.Unreached, rpc.Unreached{Address: a.GetAddress(), Cause: a.GetError()})
		default:
			reach.Answered++
			reach.Leads = reach.Leads || a.GetRole() == berthv1.Replica_LEADER
		}
	}
	return reach
}

// ListLeaders calls all replicas at once. It lists a replica that does not answer within
// Patience as unreachable. It fails only if the caller's own deadline passes, because the
// replicas then had no time to answer.
func (s *Server) ListLeaders(ctx context.Context, _ *berthv1.ListLeadersRequest) (*berthv1.ListLeadersAnswer, error) {
	answers := s.askAll(ctx)
	switch err := ctx.Err(); err {
	case nil:
	case context.DeadlineExceeded:
		return nil, status.Error(codes.DeadlineExceeded,
			"the deadline of the call passed before the replicas answered: give it more time")
	default:
		return nil, status.FromContextError(err).Err()
	}
	var newest int64
	for _, a := range answers {
		newest = max(newest, a.GetRevision())
	}
	byService := map[string]*berthv1.ServiceLeadership{}
	answer := &berthv1.ListLeadersAnswer{Now: timestamppb.Now()}
	if s.Gateway != nil {
		answer.NotReady, answer.EtcdCluster = s.Gateway()
	}
	for _, service := range model.Services {
		byService[service] = &berthv1.ServiceLeadership{Service: service}
		answer.Services = append(answer.Services, byService[service])
	}
	for i, a := range answers {
		switch behind := newest - a.GetRevision(); {
		case a.GetRole() == berthv1.Replica_UNREACHABLE:
		case a.GetRevision() == 0, behind >= store.MinRestoreBump:
			a.NoView = true
		default:
			a.Behind = behind
		}
		add(byService[s.replicas[i].service], a)
	}
	return answer, nil
}

// askAll calls every replica, and returns the answers in the order of the replicas. Reach and
// Last return them too, unless the caller ended the calls early.
func (s *Server) askAll(caller context.Context) []*berthv1.Replica {
	ctx, cancel := context.WithTimeout(caller, s.Patience)
	defer cancel()
	answers := make([]*berthv1.Replica, len(s.replicas))
	var wait sync.WaitGroup
	for i, r := range s.replicas {
		wait.Go(func() { answers[i] = r.ask(ctx) })
	}
	wait.Wait()
	if caller.Err() == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = answers
	}
	return answers
}

func (r replica) ask(ctx context.Context) *berthv1.Replica {
	answer, err := controlv1.NewReplicasClient(r.conn).GetReplica(ctx, &controlv1.GetReplicaRequest{})
	if err != nil {
		return &berthv1.Replica{Address: r.address, Role: berthv1.Replica_UNREACHABLE, Error: rpc.Cause(err)}
	}
	if of := answer.GetService(); of != "" && of != r.service {
		return &berthv1.Replica{Address: r.address, Role: berthv1.Replica_UNREACHABLE, Service: of,
			Error: "it is a replica of " + of + ", not of " + r.service}
	}
	if answer.GetAddress() == "" {
		answer.Address = r.address
	}
	return answer
}

// add adds a replica to its service. For a moment after a failover, two replicas may report
// that they lead. The replica with the higher term is the leader.
func add(to *berthv1.ServiceLeadership, r *berthv1.Replica) {
	to.Replicas = append(to.Replicas, r)
	if r.GetRole() != berthv1.Replica_LEADER || r.GetTerm() < to.GetTerm() {
		return
	}
	to.Leader, to.Address, to.Term = r.GetId(), r.GetAddress(), r.GetTerm()
	to.Since, to.Renewed = r.GetSince(), r.GetRenewed()
}
