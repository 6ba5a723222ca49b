package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"berth.dev/api/rpc"
)

// DefaultCheck is the default deadline of a read by Check.
const DefaultCheck = 2 * time.Second

// endpointTimeout is the time in which an endpoint must answer after the read of Check has failed.
const endpointTimeout = time.Second

// Check reads a key through the quorum. If that fails, it returns an error that says in one
// sentence why this process cannot use etcd: the address and the cause of each endpoint that does
// not answer, a refused login (it wraps ErrLogin) or read (ErrDenied), or a lost quorum. Without a
// deadline in ctx the read takes at most DefaultCheck, and the search for the cause at most a second
// more.
func (e *Etcd) Check(ctx context.Context, key string) error {
	reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), DefaultCheck)
	defer cancel()
	// In contrast to a read of the client, this one is not repeated if no endpoint answers.
	_, err := etcdserverpb.NewKVClient(e.client.ActiveConnection()).Range(reading, &etcdserverpb.RangeRequest{
		Key: []byte(key), KeysOnly: true, Limit: 1})
	if err == nil {
		return nil
	}
	return e.explain(ctx, key, err)
}

// explain returns the error of Check for the error of a read.
func (e *Etcd) explain(ctx context.Context, key string, err error) error {
	if refused := e.refusal(key, err); refused != nil {
		return refused
	}
	e.members.suspect()
	var unreached []rpc.Unreached
	for _, s := range e.statuses(ctx, endpointTimeout, e.members.all) {
		if s.Error != "" {
			unreached = append(unreached, rpc.Unreached{Address: s.Endpoint, Cause: s.Error})
		}
	}
	switch {
	case len(unreached) == len(e.members.all):
		return errors.New("etcd does not answer: " + rpc.Join(unreached))
	case len(unreached) > 0:
		return fmt.Errorf("etcd answers no read through its quorum: no answer from %s", rpc.Join(unreached))
	}
	return fmt.Errorf("etcd at %s answers no read through its quorum: %s", strings.Join(e.members.all, ", "), rpc.Cause(err))
}

// ClusterID returns the ID of the etcd cluster that answered the last call, in hexadecimal digits
// as etcdctl prints it. It returns "" before the first answer.
func (e *Etcd) ClusterID() string {
	id := e.cluster.Load()
	if id == 0 {
		return ""
	}
	return strconv.FormatUint(id, 16)
}

// noteCluster intercepts the calls of the client, and stores the ID of the cluster that has answered.
func (e *Etcd) noteCluster(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, conn, opts...)
	answer, has := reply.(interface {
		GetHeader() *etcdserverpb.ResponseHeader
	})
	if err != nil || !has {
		return err
	}
	if id := answer.GetHeader().GetClusterId(); id != 0 && id != e.cluster.Load() {
		e.cluster.Store(id)
	}
	return nil
}
