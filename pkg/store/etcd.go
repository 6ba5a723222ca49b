package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// DialConfig describes how to reach etcd.
type DialConfig struct {
	Endpoints []string
	// TLS is the TLS configuration of connections. It counts only if an endpoint begins with
	// https://.
	TLS                *tls.Config
	Username, Password string
	// CurrentPassword, if set, returns the password of each login instead of Password. It may be
	// called concurrently.
	CurrentPassword func() string
	// PasswordProblem, if set, returns why the source of CurrentPassword cannot be read now, or "".
	// Errors about a refused login have it.
	PasswordProblem func() string
}

// Etcd is a Store on an etcd cluster.
type Etcd struct {
	client  *clientv3.Client
	members *memberMonitor
	user    string
	// passwordProblem is DialConfig.PasswordProblem.
	passwordProblem func() string
	cluster         atomic.Uint64 // ID of the etcd cluster that answered last, or 0
}

var _ Store = (*Etcd)(nil)

// Dial returns a Store on an etcd cluster. Dial does not wait for a connection: if etcd
// is unreachable, the calls fail.
func Dial(cfg DialConfig) (*Etcd, error) {
	// gRPC's default pauses between dials grow to two minutes, far longer than a restart
	// of etcd takes.
	redial := grpc.ConnectParams{
		Backoff: grpcbackoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.2,
			MaxDelay: time.Second},
		MinConnectTimeout: time.Second,
	}
	if !slices.ContainsFunc(cfg.Endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") }) {
		cfg.TLS = nil
	}
	config := clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		Username:             cfg.Username,
		Password:             cfg.Password,
		DialTimeout:          DefaultTimeout,
		DialKeepAliveTime:    10 * time.Second, // gRPC raises shorter times to this value
		DialKeepAliveTimeout: 2 * time.Second,
		// The client sends no pings without a stream, because etcd closes an idle connection
		// that sends pings.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(redial), grpc.WithNoProxy()},
		Logger:      zap.NewNop(), // the client returns the same messages as errors
	}
	e := &Etcd{user: cfg.Username, passwordProblem: cfg.PasswordProblem}
	noting := config
	noting.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithChainUnaryInterceptor(e.noteCluster))
	var err error
	if e.client, err = newClient(noting, cfg.CurrentPassword); err != nil {
		return nil, fmt.Errorf("store: etcd client for %s: %w", strings.Join(cfg.Endpoints, ","), err)
	}
	e.members = newMemberMonitor(e.client, config, cfg.CurrentPassword)
	return e, nil
}

// Client returns the etcd client, for calls that Store does not cover.
func (e *Etcd) Client() *clientv3.Client { return e.client }

// Close ends every call and watch.
func (e *Etcd) Close() error {
	e.members.close()
	return e.client.Close()
}

// callContext adds two things to the context of a call: the default deadline, and the
// requirement that the etcd member knows etcd's leader. With this requirement a member
// that is cut off from the others refuses the call at once, and the next attempt reaches
// another member. Otherwise every third call would last until its deadline.
func callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return withDeadline(clientv3.WithRequireLeader(ctx))
}

// failed converts an error of a call to an error of this package. If the call timed out,
// failed starts a check of all members.
func (e *Etcd) failed(err error) error {
	switch known := rpctypes.Error(err); {
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded,
		errors.Is(known, rpctypes.ErrTimeout):
		e.members.suspect()
	}
	return Classify(err)
}

// Txn implements Store. The etcd client does not retry a write that it has sent.
func (e *Etcd) Txn(ctx context.Context, txn Txn) (TxnResult, error) {
	if err := checkSize(txn); err != nil {
		return TxnResult{}, err
	}
	ctx, cancel := callContext(ctx)
	defer cancel()
	resp, err := e.client.Txn(ctx).If(compares(txn.If)...).Then(ops(txn.Then)...).Else(gets(txn.Else)...).Commit()
	if err != nil {
		return TxnResult{}, e.failed(err)
	}
	res := TxnResult{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}
	if !resp.Succeeded {
		res.Got = map[string]KV{}
		for _, r := range resp.Responses {
			for _, kv := range r.GetResponseRange().Kvs {
				res.Got[string(kv.Key)] = fromEtcd(kv)
			}
		}
	}
	return res, nil
}

func compares(cs []Compare) []clientv3.Cmp {
	out := make([]clientv3.Cmp, len(cs))
	for i, c := range cs {
		switch c.Target {
		case TargetCreate:
			out[i] = clientv3.Compare(clientv3.CreateRevision(c.Key), "=", c.Revision)
		case TargetMod:
			out[i] = clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Revision)
		case TargetValue:
			out[i] = clientv3.Compare(clientv3.Value(c.Key), "=", c.Value)
		}
	}
	return out
}

func ops(in []Op) []clientv3.Op {
	out := make([]clientv3.Op, len(in))
	for i, op := range in {
		switch {
		case op.Delete && op.End != "":
			out[i] = clientv3.OpDelete(op.Key, clientv3.WithRange(op.End))
		case op.Delete:
			out[i] = clientv3.OpDelete(op.Key)
		default:
			out[i] = clientv3.OpPut(op.Key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease)))
		}
	}
	return out
}

func gets(keys []string) []clientv3.Op {
	out := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		out[i] = clientv3.OpGet(key)
	}
	return out
}

// Get implements Store.
func (e *Etcd) Get(ctx context.Context, key string) (KV, bool, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, key)
	if err != nil {
		return KV{}, false, e.failed(err)
	}
	if len(resp.Kvs) == 0 {
		return KV{}, false, nil
	}
	return fromEtcd(resp.Kvs[0]), true, nil
}

// Page implements Store.
func (e *Etcd) Page(ctx context.Context, req PageRequest) (Page, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, req.From, append(rangeOptions(req), clientv3.WithLimit(int64(req.Limit)))...)
	if err != nil {
		return Page{}, e.failed(err)
	}
	page := Page{Revision: req.Revision, More: resp.More, KVs: allFromEtcd(resp.Kvs)}
	if page.Revision == 0 {
		page.Revision = resp.Header.Revision
	}
	return page, nil
}

// rangeOptions returns the options of a range read, without a limit.
func rangeOptions(req PageRequest) []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithRange(req.To), clientv3.WithRev(req.Revision)}
	if req.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	return options
}

func allFromEtcd(from []*mvccpb.KeyValue) []KV {
	kvs := make([]KV, len(from))
	for i, kv := range from {
		kvs[i] = fromEtcd(kv)
	}
	return kvs
}

// Grant implements Store.
func (e *Etcd) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	resp, err := e.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return Lease{}, e.failed(err)
	}
	return Lease{ID: int64(resp.ID), TTL: time.Duration(resp.TTL) * time.Second}, nil
}

// KeepAlive implements Store.
func (e *Etcd) KeepAlive(ctx context.Context, lease int64) (time.Duration, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	resp, err := e.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return 0, e.failed(err)
	}
	if resp.TTL <= 0 {
		return 0, ErrLeaseNotFound
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// Revoke implements Store.
func (e *Etcd) Revoke(ctx context.Context, lease int64) error {
	ctx, cancel := callContext(ctx)
	defer cancel()
	_, err := e.client.Revoke(ctx, clientv3.LeaseID(lease))
	return e.failed(err)
}

// Alarms implements Store. It reads the status of one member, because a list of the
// alarms would need an entry in etcd's log.
func (e *Etcd) Alarms(ctx context.Context) ([]string, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	resp, err := etcdserverpb.NewMaintenanceClient(e.client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return nil, e.failed(err)
	}
	return alarmsOf(resp.GetErrors()), nil
}

// alarmsOf returns the names of the alarms in the errors of a member's status. It returns
// other errors unchanged.
func alarmsOf(errors []string) (names []string) {
	for _, text := range errors {
		names = append(names, cmp.Or(alarmIn(text), text))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// alarmIn returns the name of the alarm that a text mentions, if any.
func alarmIn(text string) string {
	for number, name := range etcdserverpb.AlarmType_name {
		if number != int32(etcdserverpb.AlarmType_NONE) && strings.Contains(text, name) {
			return name
		}
	}
	return ""
}
