// Package keyspace names every key that Berth keeps in etcd, and its one
// writer. No other package puts a key together.
//
//	/berth/{cluster}/
//	  leaders/{service}                                   winner; a standby may evict
//	  {service}/chain                                     the service's leader
//	  {service}/poison/{id}                               the service's leader
//	  registry/reservations/{job}/{stage}/{name}/{uid}    registry
//	  registry/stages/{job}/{stage}                       registry
//	  registry/ready                                      registry
//	  executors/records/{id}                              executor-state
//	  executors/live/{id}                                 executor-state, on the executor's etcd lease
//	  executors/leases/{uid}/{chunk}                      executor-state
//	  executors/skus/{name}                               executor-state
//	  executors/pools/{name}                              executor-state
//	  executors/disables/{id}                             executor-state
//	  executors/forgotten                                 executor-state
//	  assigner/tasks/{uid}                                assigner
//	  assigner/tasks/{uid}/{chunk}                        assigner
//	  assigner/refusals/{id}                              assigner
//	  events/{job}/{service}                              each service its own
//	  events/{job}/{service}/{segment}-{n}-{size}         each service its own
//	  segments/{service}                                  the service
//	  segments/{service}/{segment}                        the service
//
// Names hold only [A-Za-z0-9._-], so a slash always separates. The package is
// pure.
package keyspace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth.dev/pkg/model"
)

// Space is the keys of one cluster.
type Space struct {
	prefix string
}

// New answers the keys of a cluster.
func New(cluster string) Space { return Space{"/berth/" + cluster + "/"} }

// Prefix is what every key of the cluster begins with.
func (s Space) Prefix() string { return s.prefix }

// Writer is the service whose leader alone writes records of the kind; empty
// for leader keys, chains and poison, where it is the service in the key.
func Writer(kind model.Kind) string {
	switch kind {
	case model.KindReservation, model.KindStage, model.KindReady:
		return model.ServiceRegistry
	case model.KindExecutor, model.KindLive, model.KindLeaseChunk,
		model.KindSKU, model.KindPool, model.KindDisable, model.KindForgotten:
		return model.ServiceExecutorState
	case model.KindTaskHeader, model.KindTaskChunk, model.KindRefusal:
		return model.ServiceAssigner
	}
	return ""
}

// Key is the key of a record.
func (s Space) Key(r model.Ref) string {
	switch r.Kind {
	case model.KindLeader:
		return s.prefix + "leaders/" + r.ID
	case model.KindChain:
		return s.prefix + r.ID + "/chain"
	case model.KindPoison:
		service, id, _ := strings.Cut(r.ID, "/")
		return s.prefix + service + "/poison/" + id
	case model.KindReservation:
		return s.prefix + "registry/reservations/" + r.Key.Job + "/" + r.Key.Stage + "/" + r.Key.Name + "/" + r.ID
	case model.KindStage:
		return s.prefix + "registry/stages/" + r.Key.Job + "/" + r.Key.Stage
	case model.KindReady:
		return s.prefix + "registry/ready"
	case model.KindExecutor:
		return s.prefix + "executors/records/" + r.ID
	case model.KindSKU:
		return s.prefix + "executors/skus/" + r.ID
	case model.KindPool:
		return s.prefix + "executors/pools/" + r.ID
	case model.KindDisable:
		return s.prefix + "executors/disables/" + r.ID
	case model.KindForgotten:
		return s.prefix + "executors/forgotten"
	case model.KindLive:
		return s.prefix + "executors/live/" + r.ID
	case model.KindLeaseChunk:
		return s.prefix + "executors/leases/" + r.ID + "/" + chunk(r.Chunk)
	case model.KindTaskHeader:
		return s.prefix + "assigner/tasks/" + r.ID
	case model.KindTaskChunk:
		return s.prefix + "assigner/tasks/" + r.ID + "/" + chunk(r.Chunk)
	case model.KindRefusal:
		return s.prefix + "assigner/refusals/" + r.ID
	}
	panic(fmt.Sprintf("keyspace: no key for kind %d", r.Kind))
}

// Parse is the reverse of Key. Keys that are no records, events among them,
// are not ok; nor are those that Key does not make, so that no two keys are one
// record's.
func (s Space) Parse(key string) (ref model.Ref, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || len(rest) > maxKey {
		return model.Ref{}, false
	}
	p := strings.Split(rest, "/")
	if slices.ContainsFunc(p, func(part string) bool { return !named(part) }) {
		return model.Ref{}, false
	}
	switch {
	case len(p) == 2 && p[0] == "leaders":
		return model.Ref{Kind: model.KindLeader, ID: p[1]}, true
	case len(p) == 2 && p[1] == "chain":
		return model.Ref{Kind: model.KindChain, ID: p[0]}, true
	case len(p) == 3 && p[1] == "poison":
		return model.Ref{Kind: model.KindPoison, ID: p[0] + "/" + p[2]}, true
	case len(p) == 6 && p[0] == "registry" && p[1] == "reservations":
		return model.Ref{Kind: model.KindReservation, Key: model.Key{Job: p[2], Stage: p[3], Name: p[4]}, ID: p[5]}, true
	case len(p) == 4 && p[0] == "registry" && p[1] == "stages":
		return model.Ref{Kind: model.KindStage, Key: model.Key{Job: p[2], Stage: p[3]}}, true
	case len(p) == 2 && p[0] == "registry" && p[1] == "ready":
		return model.Ref{Kind: model.KindReady}, true
	case len(p) == 3 && p[0] == "executors" && p[1] == "skus":
		return model.Ref{Kind: model.KindSKU, ID: p[2]}, true
	case len(p) == 3 && p[0] == "executors" && p[1] == "pools":
		return model.Ref{Kind: model.KindPool, ID: p[2]}, true
	case len(p) == 3 && p[0] == "executors" && p[1] == "disables":
		return model.Ref{Kind: model.KindDisable, ID: p[2]}, true
	case len(p) == 2 && p[0] == "executors" && p[1] == "forgotten":
		return model.Ref{Kind: model.KindForgotten}, true
	case len(p) == 3 && p[0] == "executors" && p[1] == "records":
		return model.Ref{Kind: model.KindExecutor, ID: p[2]}, true
	case len(p) == 3 && p[0] == "executors" && p[1] == "live":
		return model.Ref{Kind: model.KindLive, ID: p[2]}, true
	case len(p) == 4 && p[0] == "executors" && p[1] == "leases":
		return chunked(model.KindLeaseChunk, p[2], p[3])
	case len(p) == 3 && p[0] == "assigner" && p[1] == "tasks":
		return model.Ref{Kind: model.KindTaskHeader, ID: p[2]}, true
	case len(p) == 4 && p[0] == "assigner" && p[1] == "tasks":
		return chunked(model.KindTaskChunk, p[2], p[3])
	case len(p) == 3 && p[0] == "assigner" && p[1] == "refusals":
		return model.Ref{Kind: model.KindRefusal, ID: p[2]}, true
	}
	return model.Ref{}, false
}

// maxKey bounds what of a key is looked at: the names in it are 253 bytes at most.
const maxKey = 2048

// named reports whether a part of a key can be a name.
func named(part string) bool {
	for i := range len(part) {
		b := part[i]
		if ('0' > b || b > '9') && ('a' > b || b > 'z') && ('A' > b || b > 'Z') && b != '.' && b != '_' && b != '-' {
			return false
		}
	}
	return part != ""
}

func chunk(n int32) string { return fmt.Sprintf("%05d", n) }

func chunked(kind model.Kind, id, n string) (model.Ref, bool) {
	number, err := strconv.ParseInt(n, 10, 32)
	if err != nil || number < 0 || chunk(int32(number)) != n {
		return model.Ref{}, false
	}
	return model.Ref{Kind: kind, ID: id, Chunk: int32(number)}, true
}
