package internal

import (
	"context"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// Agents implements control.v1.Agents over the loop. It limits the concurrent calls of
// agents, so that the loop has space for other calls.
type Agents struct {
	controlv1.UnimplementedAgentsServer
	loop    loop.Owner[*inventory.Core]
	limiter limiter
	// cluster is the name of the cluster. Agents of other clusters are refused.
	cluster string
}

// NewAgents returns a server that uses the loop's core, in a cluster.
func NewAgents(l loop.Owner[*inventory.Core], cluster string) *Agents {
	return &Agents{loop: l, limiter: newLimiter(maxLoopCalls), cluster: cluster}
}

// maxSecret is the maximum length of an agent's secret in bytes.
const maxSecret = 256

// hashed returns the hash of a secret. Only the hash is stored. The secret itself reaches
// neither the core, whose inputs may be quarantined, nor logs.
func hashed(secret string) (string, error) {
	switch {
	case secret == "":
		return "", nil
	case len(secret) > maxSecret:
		return "", fault.BadField(fault.ReasonTooLarge, "secret", "must be at most %d bytes, got %d", maxSecret, len(secret))
	}
	sum := sha256.Sum256([]byte(secret))
	return string(sum[:]), nil
}

// maxRegistration is the maximum size of a registration in bytes. With it, the default
// maximum number of executors (max-executors) takes less than a third of etcd's quota of
// 8 GiB.
const maxRegistration = 16 << 10

// Register implements control.v1.Agents.
func (s *Agents) Register(ctx context.Context, req *controlv1.RegisterRequest) (*controlv1.RegisterAnswer, error) {
	if n := proto.Size(req); n > maxRegistration {
		return nil, fault.New(fault.Invalid, fault.ReasonTooLarge, "the registration must be at most %d bytes, got %d",
			maxRegistration, n)
	}
	if _, known := berthv1.Executor_Kind_name[int32(req.GetKind())]; !known {
		return nil, fault.BadField(fault.ReasonInvalid, "kind", "must be HOST or CELL, got %d", req.GetKind())
	}
	if own := req.GetCluster(); own != "" && own != s.cluster {
		return nil, fault.New(fault.Precondition, fault.ReasonOtherCluster,
			"this is the cluster %q, and the directory of the agent belongs to the cluster %.253q", s.cluster, own)
	}
	secret, err := hashed(req.GetSecret())
	if err != nil {
		return nil, err
	}
	value, err := s.do(ctx, inventory.Register{
		ID: req.GetId(), Address: req.GetAddress(), SKU: req.GetSku(), Host: req.GetHost(), Attributes: req.GetAttributes(),
		Resources: req.GetResources(), Reserved: wire.SharesOf(req.GetReserved()), Generation: req.GetGeneration(),
		Nonce: req.GetNonce(), SecretHash: secret, Cell: req.GetKind() == berthv1.Executor_CELL,
		NeedsCommand: req.GetNeedsCommand(), AllowLists: req.GetAllowLists(),
	})
	if err != nil {
		return nil, err
	}
	registered := value.(inventory.Registered)
	return &controlv1.RegisterAnswer{
		Incarnation: registered.Incarnation, AssignerTerm: registered.AssignerTerm,
		HeartbeatEvery: durationpb.New(HeartbeatEvery), Cluster: s.cluster,
	}, nil
}

// Depart implements control.v1.Agents.
func (s *Agents) Depart(ctx context.Context, req *controlv1.DepartRequest) (*controlv1.DepartAnswer, error) {
	_, err := s.do(ctx, inventory.Depart{ID: req.GetId(), Incarnation: req.GetIncarnation(),
		EtcdLease: req.GetEtcdLease()})
	if err != nil {
		return nil, err
	}
	return &controlv1.DepartAnswer{}, nil
}

// Announce implements control.v1.Agents.
func (s *Agents) Announce(ctx context.Context, req *controlv1.AnnounceRequest) (*controlv1.AnnounceAnswer, error) {
	value, err := s.do(ctx, inventory.Announce{
		ID: req.GetId(), Incarnation: req.GetIncarnation(), EtcdLease: req.GetEtcdLease(), Workers: int(req.GetWorkers()),
		Orphans: req.GetOrphans(), Nonce: req.GetNonce(),
	})
	if err != nil {
		return nil, err
	}
	return &controlv1.AnnounceAnswer{Superseded: value.(inventory.Announced).Superseded}, nil
}

// do sends a request to the core when the limiter admits the request.
func (s *Agents) do(ctx context.Context, request any) (value any, err error) {
	err = s.limiter.do(ctx, func() error {
		value, err = s.loop.Do(ctx, request)
		return err
	})
	return value, err
}
