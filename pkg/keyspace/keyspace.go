// Package keyspace gives every record exactly one key in etcd and every key exactly one
// writer. No other package constructs keys. These are all keys and their writers:
//
//	/berth/{cluster}/
//	  leaders/{service}                                   the winner; a standby may delete it
//	  {service}/chain                                     the service's leader
//	  {service}/poison/{id}                               the service's leader
//	  registry/reservations/{job}/{stage}/{name}/{uid}    registry
//	  registry/stages/{job}/{stage}                       registry
//	  registry/ready                                      registry
//	  executors/records/{id}                              executor-state
//	  executors/live/{id}                                 executor-state, on the executor's etcd lease
//	  executors/leases/{uid}/{chunk}                      executor-state
//	  executors/offers/{uid}                              executor-state
//	  executors/volumes/{job}/{stage}/{chunk}             executor-state
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
// Names consist of [A-Za-z0-9._-], so a slash always separates two names. The package
// does no I/O.
package keyspace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth.dev/pkg/model"
)

// Space constructs and parses the keys of one cluster.
type Space struct {
	prefix string
}

// New returns the Space of a cluster.
func New(cluster string) Space { return Space{"/berth/" + cluster + "/"} }

// Prefix returns the prefix of every key of the cluster.
func (s Space) Prefix() string { return s.prefix }

// Writer returns the only service whose leader writes records of the kind. It returns ""
// for leader keys, chains and poison, because their keys name the service.
func Writer(kind model.Kind) string {
	switch kind {
	case model.KindReservation, model.KindStage, model.KindReady:
		return model.ServiceRegistry
	case model.KindExecutor, model.KindLive, model.KindLeaseChunk, model.KindVolumeChunk,
		model.KindSKU, model.KindPool, model.KindDisable, model.KindForgotten, model.KindOffer:
		return model.ServiceExecutorState
	case model.KindTaskHeader, model.KindTaskChunk, model.KindRefusal:
		return model.ServiceAssigner
	}
	return ""
}

// directories has the keys of two sorts of kinds. For a kind with one record per ID it
// has the key without the ID. For a kind with a single record it has the whole key.
var directories = map[model.Kind]string{
	model.KindLeader:     "leaders/",
	model.KindReady:      "registry/ready",
	model.KindExecutor:   "executors/records/",
	model.KindLive:       "executors/live/",
	model.KindSKU:        "executors/skus/",
	model.KindPool:       "executors/pools/",
	model.KindDisable:    "executors/disables/",
	model.KindForgotten:  "executors/forgotten",
	model.KindOffer:      "executors/offers/",
	model.KindTaskHeader: "assigner/tasks/",
	model.KindRefusal:    "assigner/refusals/",
}

// kinds is the inverse of directories.
var kinds = func() map[string]model.Kind {
	inverse := map[string]model.Kind{}
	for kind, directory := range directories {
		inverse[directory] = kind
	}
	return inverse
}()

// Key returns the key of a record.
func (s Space) Key(r model.Ref) string {
	if directory, ok := directories[r.Kind]; ok {
		return s.prefix + directory + r.ID
	}
	switch r.Kind {
	case model.KindChain:
		return s.prefix + r.ID + "/chain"
	case model.KindPoison:
		service, id, _ := strings.Cut(r.ID, "/")
		return s.prefix + service + "/poison/" + id
	case model.KindReservation:
		return s.prefix + "registry/reservations/" + r.Key.Job + "/" + r.Key.Stage + "/" + r.Key.Name + "/" + r.ID
	case model.KindStage:
		return s.prefix + "registry/stages/" + r.Key.Job + "/" + r.Key.Stage
	case model.KindLeaseChunk:
		return s.prefix + "executors/leases/" + r.ID + "/" + chunk(r.Chunk)
	case model.KindVolumeChunk:
		return s.prefix + "executors/volumes/" + r.Key.Job + "/" + r.Key.Stage + "/" + chunk(r.Chunk)
	case model.KindTaskChunk:
		return s.prefix + "assigner/tasks/" + r.ID + "/" + chunk(r.Chunk)
	}
	panic(fmt.Sprintf("keyspace: no key for kind %d", r.Kind))
}

// Parse is the inverse of Key. It returns false for keys that Key never returns, such as
// the keys of events. So two different keys never belong to the same record.
func (s Space) Parse(key string) (ref model.Ref, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || len(rest) > maxKey {
		return model.Ref{}, false
	}
	p := strings.Split(rest, "/")
	if slices.ContainsFunc(p, func(part string) bool { return !named(part) }) {
		return model.Ref{}, false
	}
	if kind, ok := kinds[rest]; ok {
		return model.Ref{Kind: kind}, true
	}
	id := p[len(p)-1]
	if kind, ok := kinds[strings.TrimSuffix(rest, id)]; ok {
		return model.Ref{Kind: kind, ID: id}, true
	}
	switch {
	case len(p) == 2 && p[1] == "chain":
		return model.Ref{Kind: model.KindChain, ID: p[0]}, true
	case len(p) == 3 && p[1] == "poison":
		return model.Ref{Kind: model.KindPoison, ID: p[0] + "/" + p[2]}, true
	case len(p) == 6 && p[0] == "registry" && p[1] == "reservations":
		return model.Ref{Kind: model.KindReservation, Key: model.Key{Job: p[2], Stage: p[3], Name: p[4]}, ID: p[5]}, true
	case len(p) == 4 && p[0] == "registry" && p[1] == "stages":
		return model.Ref{Kind: model.KindStage, Key: model.Key{Job: p[2], Stage: p[3]}}, true
	case len(p) == 4 && p[0] == "executors" && p[1] == "leases":
		return chunked(model.Ref{Kind: model.KindLeaseChunk, ID: p[2]}, p[3])
	case len(p) == 5 && p[0] == "executors" && p[1] == "volumes":
		return chunked(model.Ref{Kind: model.KindVolumeChunk, Key: model.Key{Job: p[2], Stage: p[3]}}, p[4])
	case len(p) == 4 && p[0] == "assigner" && p[1] == "tasks":
		return chunked(model.Ref{Kind: model.KindTaskChunk, ID: p[2]}, p[3])
	}
	return model.Ref{}, false
}

// maxKey is the maximum length of a key that is parsed, in bytes. Each name in a key has
// at most 253 bytes.
const maxKey = 2048

// named reports whether a part of a key is a valid name.
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

// chunked returns the Ref with the chunk whose number is the text n.
func chunked(ref model.Ref, n string) (model.Ref, bool) {
	number, err := strconv.ParseInt(n, 10, 32)
	if err != nil || number < 0 || chunk(int32(number)) != n {
		return model.Ref{}, false
	}
	ref.Chunk = int32(number)
	return ref, true
}
