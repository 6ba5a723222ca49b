package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// listedKeys is the maximum number of keys that inspect lists.
const listedKeys = 1000

// inspection is a record under a key of etcd.
type inspection struct {
	Key string `json:"key"`
	// Message is the name of the protobuf message of the record.
	Message        string `json:"message"`
	CreateRevision int64  `json:"createRevision"`
	ModRevision    int64  `json:"modRevision"`
	// ReadRevision is the revision of the read.
	ReadRevision int64 `json:"readRevision"`
	// EtcdLease is the etcd lease of the key in hexadecimal, as etcdctl prints it.
	EtcdLease string `json:"etcdLease,omitempty"`
	// Problem is why services would quarantine the record.
	Problem string          `json:"problem,omitempty"`
	Record  json.RawMessage `json:"record"`
}

// pager reads pages of etcd.
type pager interface {
	Page(ctx context.Context, request store.PageRequest) (store.Page, error)
}

func (a *app) inspect() *cobra.Command {
	etcd := running.Etcd{Endpoints: []string{"127.0.0.1:2379"}}
	var (
		cluster, output string
		revision        int64
		timeout         time.Duration
	)
	cmd := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Print the decoded record under a key of etcd",
		Long: `Print the decoded record under a key of etcd with its revisions. If the key ends with a
slash, list the keys that begin with it, at most 1000. The command only reads, and
needs no gateway or service. When 'berth dev' starts, it prints the address of its etcd.

A key may be absolute (/berth/default/registry/ready) or relative to the cluster
(registry/ready). If services would quarantine the record, the field problem has the
reason, and the exit code is 1.`,
		Example: "  berth inspect registry/reservations/ --etcd-endpoints etcd-0:2379\n" +
			"  berth inspect registry/stages/train/gpu -o json\n  berth inspect leaders/registry --revision 1042",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case timeout <= 0:
				return badUsage(cmd, "--timeout must be longer than 0, got %v", timeout)
			case revision < 0:
				return badUsage(cmd, "--revision must not be negative, got %d", revision)
			}
			if err := process.CheckCluster(cluster); err != nil {
				return err
			}
			key := args[0]
			if !strings.HasPrefix(key, "/") {
				key = keyspace.New(cluster).Prefix() + key
			}
			config, err := etcd.Config()
			if err != nil {
				return err
			}
			s, err := store.Dial(config)
			if err != nil {
				return err
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			err = a.inspectKey(ctx, s, key, revision, output)
			if ctx.Err() != nil && cmd.Context().Err() == nil {
				return running.EtcdSilent(etcd.Endpoints, timeout)
			}
			return etcd.Refused(err, "read "+key)
		},
	}
	flags := cmd.Flags()
	etcd.Flags(flags, "etcd endpoints, host:port; https://host:port for TLS")
	flags.StringVar(&cluster, "cluster", "default", "cluster of a relative key")
	flags.Int64Var(&revision, "revision", 0, "revision to read at; etcd keeps some minutes of revisions (default: the newest)")
	flags.DurationVar(&timeout, "timeout", defaultTimeout, "maximum time for the answer of etcd")
	outputFlag(flags, &output, "yaml", "json")
	return cmd
}

// inspectKey prints the record under a key, or the keys under a prefix that ends with a
// slash.
func (a *app) inspectKey(ctx context.Context, s pager, key string, revision int64, output string) error {
	request := store.PageRequest{From: key, To: key + "\x00", Revision: revision, Limit: 1}
	prefix := strings.HasSuffix(key, "/")
	if prefix {
		// '0' follows '/', so the range has the keys that begin with the prefix.
		request.To, request.Limit, request.KeysOnly = strings.TrimSuffix(key, "/")+"0", listedKeys, true
	}
	page, err := s.Page(ctx, request)
	if err != nil {
		return err
	}
	if len(page.KVs) == 0 {
		return fault.New(fault.NotFound, fault.ReasonNotFound, "there is no key %s at revision %d", key, page.Revision)
	}
	if prefix {
		for _, kv := range page.KVs {
			if err := a.print(kv.Key); err != nil {
				return err
			}
		}
		if page.More {
			fmt.Fprintf(a.Err, "There are more keys than %d; give a longer prefix.\n", listedKeys)
		}
		return nil
	}
	found, err := decoded(page.KVs[0])
	if err != nil {
		return err
	}
	found.ReadRevision = page.Revision
	text, err := show.ValueYAML(found)
	if output == "json" {
		text, err = show.ValueJSON(found)
	}
	if err == nil {
		_, err = a.Out.Write(text)
	}
	if err == nil && found.Problem != "" {
		return fault.New(fault.Precondition, fault.ReasonPoison, "the record is damaged: %s", found.Problem)
	}
	return err
}

// decoded decodes the value of a key.
func decoded(kv store.KV) (*inspection, error) {
	found := &inspection{Key: kv.Key, CreateRevision: kv.Create, ModRevision: kv.Mod, Record: json.RawMessage("null")}
	if kv.Lease != 0 {
		found.EtcdLease = fmt.Sprintf("%x", kv.Lease)
	}
	parts := strings.Split(kv.Key, "/")
	if len(parts) < 4 {
		return nil, fault.BadField(fault.ReasonInvalid, "KEY", "%s is not a key of Berth", kv.Key)
	}
	space := keyspace.New(parts[2])
	ref, known := space.Parse(kv.Key)
	var m proto.Message
	if known {
		m = wire.NewRecord(ref.Kind)
	} else {
		m = eventMessage(space, kv.Key)
	}
	if m == nil {
		return nil, fault.BadField(fault.ReasonInvalid, "KEY", "%s is not a key of Berth", kv.Key)
	}
	found.Message = string(m.ProtoReflect().Descriptor().Name())
	if err := proto.Unmarshal(kv.Value, m); err != nil {
		found.Problem = err.Error()
		return found, nil
	}
	if known && ref.Kind != model.KindChain {
		if _, err := wire.Decode(ref, kv.Value, kv.Create, kv.Mod, kv.Lease); err != nil {
			found.Problem = err.Error()
		}
	}
	text, err := protojson.Marshal(m)
	found.Record = text
	return found, err
}

// eventMessage returns an empty message for the keys of events, which are no records of the
// cores, or nil for other keys.
func eventMessage(space keyspace.Space, key string) proto.Message {
	if e, ok := space.ParseEvent(key); ok {
		if e.Segment == 0 {
			return &recordv1.EventFloor{}
		}
		return &berthv1.Event{}
	}
	_, _, segment := space.ParseSegment(key)
	if segment || strings.HasPrefix(key, space.Segments()) {
		return &recordv1.EventSegment{}
	}
	return nil
}
