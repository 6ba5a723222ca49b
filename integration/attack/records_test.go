package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// recordsPatience is the time limit of every wait. Only a failure takes this long.
const recordsPatience = 90 * time.Second

// hugeValue is almost the largest value that etcd accepts by default.
const hugeValue = 1400 << 10

// The test writes random values under keys of every kind. No process ends, and everything
// that does not depend on these records is served: workers keep running, other workers
// start, and events arrive.
func TestMutatedRecordsA6(t *testing.T) {
	n := 400
	if *floods {
		n = 10_000
	}
	r := startRecords(t)
	victim := r.run("victim", "bad")
	healthy := r.run("healthy", "good")
	if _, err := r.client.PutSKU(r.ctx, &berthv1.Sku{Name: "bad", Resources: map[string]int64{"slots": 4}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.PutPool(r.ctx, &berthv1.Pool{Name: "bad",
		Attributes: map[string]string{"pool": "bad"}}); err != nil {
		t.Fatal(err)
	}
	runningProcess := r.processes()

	rng := rand.New(rand.NewPCG(uint64(n), 1))
	attacked := r.attack(rng, n, victim.GetUid())
	t.Logf("mutated %d records of %d key kinds", n, attacked)

	for range 3 {
		r.run(fmt.Sprintf("after-%d", rng.IntN(1<<30)), "good")
	}
	if now, err := r.client.Get(r.ctx, client.KeyOf(healthy)); err != nil ||
		now.GetState() != berthv1.Reservation_ACTIVE || now.GetWorkerCounts()["RUNNING"] != 2 {
		t.Errorf("the healthy reservation = %v with workers %v, %v", now.GetState(), now.GetWorkerCounts(), err)
	}
	if _, err := r.client.Cancel(r.ctx, client.KeyOf(healthy)); err != nil {
		t.Errorf("cancel of the healthy job: %v", err)
	}
	if _, err := r.client.WaitFor(r.ctx, client.KeyOf(healthy), berthv1.Reservation_CANCELLED); err != nil {
		t.Errorf("the healthy job was not cancelled: %v", err)
	}
	r.findings()
	for name, before := range runningProcess {
		if p := before.process; !p.Running() || p.Pid() != before.pid {
			t.Errorf("%s has ended", name)
		}
	}
}

// records is a fleet whose etcd the test attacks.
type records struct {
	*testing.T
	ctx    context.Context
	fleet  *fleet.Fleet
	client *client.Client
	store  *store.Etcd
	space  keyspace.Space
}

func startRecords(t *testing.T) *records {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(context.Background(), 3*recordsPatience)
	t.Cleanup(stop)
	f, err := fleet.Start(ctx, fleet.Config{Binary: binary, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Dial(store.DialConfig{Endpoints: f.Etcd()[:1]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close() // a stopping etcd waits for watches to close
		if err := f.Close(); err != nil {
			t.Errorf("stop of the fleet: %v", err)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-3000):])
			}
		}
	})
	for _, sku := range []string{"good", "bad"} {
		if err := f.StartSim(ctx, sku, 4, 50); err != nil {
			t.Fatal(err)
		}
	}
	return &records{t, ctx, f, f.Client(), s, keyspace.New("default")}
}

// run starts a job of two workers and waits until both workers run.
func (r *records) run(job, sku string) *berthv1.Reservation {
	r.Helper()
	reservation, err := r.client.Reserve(r.ctx, &berthv1.Reservation{Job: job, Stage: "s", Count: 2,
		Constraints: &berthv1.Constraints{Sku: sku}})
	if err != nil {
		r.Fatalf("%s: %v", job, err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, recordsPatience)
	defer cancel()
	running := map[int32]bool{}
	for event, err := range r.client.Events(ctx, job, "") {
		if err != nil {
			r.Fatalf("%s: %v", job, err)
		}
		if event.GetKind() == berthv1.Event_WORKER_RUNNING {
			for _, w := range event.GetWorkers() {
				running[w.GetIndex()] = true
			}
		}
		if len(running) == 2 {
			return reservation
		}
	}
	r.Fatalf("the workers of %s are not running", job)
	return nil
}

// runningProcess is a process and its process ID.
type runningProcess struct {
	process *child.Process
	pid     int
}

func (r *records) processes() map[string]runningProcess {
	all := map[string]runningProcess{}
	for _, list := range r.fleet.Processes() {
		for _, p := range list {
			all[p.Name] = runningProcess{p, p.Pid()}
		}
	}
	return all
}

// attack writes n mutated values under keys of the victim, under keys of the whole cluster,
// and under keys that only the attack uses. It returns the number of different kinds of
// keys.
func (r *records) attack(rng *rand.Rand, n int, uid string) int {
	r.Helper()
	kvs, _, err := store.Range(r.ctx, r.store, r.space.Prefix())
	if err != nil {
		r.Fatal(err)
	}
	kinds := map[string]bool{}
	var seeds []store.KV
	var ops []store.Op
	mutated := map[model.Kind]bool{}
	damage := func(key string, kv store.KV) {
		if ref, ok := r.space.Parse(key); ok {
			mutated[ref.Kind] = true
		}
		ops = append(ops, store.Op{Key: key, Value: mutate(rng, kv.Value), Lease: kv.Lease})
	}
	for _, kv := range kvs {
		rest := strings.TrimPrefix(kv.Key, r.space.Prefix())
		kind := strings.Join(strings.Split(rest, "/")[:min(2, strings.Count(rest, "/")+1)], "/")
		about := strings.Contains(rest, "victim") || strings.Contains(rest, uid) || strings.Contains(rest, "/bad")
		switch {
		case about:
			seeds = append(seeds, kv)
			damage(kv.Key, kv)
		case strings.HasPrefix(rest, "leaders/"), strings.HasPrefix(rest, "segments/") && strings.Count(rest, "/") == 1,
			rest == "registry/ready", strings.HasSuffix(rest, "/chain"):
			// The whole cluster depends on the single record of each of these kinds.
			damage(kv.Key, kv)
		default:
			continue
		}
		kinds[kind] = true
	}
	for _, key := range []string{
		r.space.Key(model.Ref{Kind: model.KindForgotten}), r.space.Key(model.Ref{Kind: model.KindPoison,
			ID: "registry/0123456789abcdef"}),
		r.space.Key(model.Ref{Kind: model.KindDisable, ID: "junk"}), r.space.Prefix() + "junk",
		r.space.Prefix() + "registry/reservations/a/b",
	} {
		seeds = append(seeds, store.KV{Key: key, Value: []byte("\x0a\x04junk\x10\x01")})
		damage(key, seeds[len(seeds)-1])
		kinds[key] = true
	}
	refusal := &model.Refusal{Executor: "bad-0", Incarnation: 1, Reason: fault.ReasonPermissionDenied, Message: "no"}
	value, err := wire.Encode(refusal)
	if err != nil {
		r.Fatal(err)
	}
	seeds = append(seeds, store.KV{Key: r.space.Key(refusal.Ref()), Value: value})
	damage(seeds[len(seeds)-1].Key, seeds[len(seeds)-1])
	kinds["assigner/refusals"] = true
	volumes := &model.VolumeChunk{Job: "victim", Stage: "s", Volumes: []model.Volume{{ID: "0123456789ab", Ordinal: 1,
		State: model.VolumeReady, Each: resource.Vector{"slots": 1}, Resource: "slots"}}}
	if value, err = wire.Encode(volumes); err != nil {
		r.Fatal(err)
	}
	seeds = append(seeds, store.KV{Key: r.space.Key(volumes.Ref()), Value: value})
	damage(seeds[len(seeds)-1].Key, seeds[len(seeds)-1])
	kinds["executors/volumes"] = true
	for kind := model.KindLeader; kind <= model.KindVolumeChunk; kind++ {
		if !mutated[kind] {
			r.Errorf("no record of kind %d was mutated", kind)
		}
	}
	names := strings.NewReplacer("victim", "junk-%d", uid, "junk-%[1]d", "bad-", "junk-%d-", "0123456789abcdef", "%016x")
	huge := 3
	for i := 0; len(ops) < n; i++ {
		kv := seeds[rng.IntN(len(seeds))]
		kv.Lease = 0
		key := names.Replace(kv.Key)
		if strings.Contains(key, "%") {
			key = fmt.Sprintf(strings.ReplaceAll(key, "%d", "%[1]d"), i)
		}
		damage(key, kv)
		if huge > 0 {
			huge--
			ops[len(ops)-1].Value = append(ops[len(ops)-1].Value, make([]byte, hugeValue)...)
		}
	}
	r.write(ops)
	return len(kinds)
}

// write writes the operations in transactions of the maximum size. A key is in each
// transaction at most once.
func (r *records) write(ops []store.Op) {
	r.Helper()
	for len(ops) > 0 {
		var txn store.Txn
		bytes, keys := 0, map[string]bool{}
		for len(ops) > 0 && len(txn.Then) < store.MaxTxnOps {
			bytes += len(ops[0].Value)
			if keys[ops[0].Key] || bytes > hugeValue+64<<10 && len(txn.Then) > 0 {
				break
			}
			keys[ops[0].Key] = true
			txn.Then, ops = append(txn.Then, ops[0]), ops[1:]
		}
		if _, err := r.store.Txn(r.ctx, txn); err != nil {
			r.Fatalf("write of %d records: %v", len(txn.Then), err)
		}
	}
}

// findings waits until all services answer. It checks that each quarantined object has
// exactly one finding.
func (r *records) findings() {
	r.Helper()
	tick, timeout := time.NewTicker(20*time.Millisecond), time.NewTimer(recordsPatience)
	defer tick.Stop()
	defer timeout.Stop()
	for missing := "findings"; ; {
		answer, err := r.client.Findings(r.ctx)
		told := map[string]int{}
		missing = ""
		if err != nil {
			missing = err.Error()
		}
		for _, f := range answer.GetFindings() {
			switch f.GetKind() {
			case "SERVICE_UNAVAILABLE":
				missing = f.String()
			case string("POISON"):
				told[f.GetObject()]++
			}
		}
		for object, times := range told {
			if times > 1 && object != "records" {
				r.Errorf("%s was reported %d times", object, times)
			}
		}
		if missing == "" && len(told) == 0 {
			missing = fmt.Sprintf("no record was quarantined (%s)", fault.ReasonPoison)
		}
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			r.Fatal(missing)
		}
	}
}

// mutate damages a value. It truncates or empties the value, flips bits, removes or repeats
// a part, or inserts a huge number.
func mutate(rng *rand.Rand, value []byte) []byte {
	mutated := append([]byte(nil), value...)
	for range 1 + rng.IntN(3) {
		if len(mutated) == 0 {
			return mutated
		}
		at := rng.IntN(len(mutated))
		switch rng.IntN(7) {
		case 0:
			mutated = mutated[:at]
		case 1:
			mutated[at] ^= 1 << rng.IntN(8)
		case 2:
			mutated = append(mutated[:at:at], mutated[min(len(mutated), at+1+rng.IntN(8)):]...)
		case 3:
			mutated = append(mutated[:at:at], append([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), mutated[at:]...)...)
		case 4:
			mutated[at] = byte(rng.IntN(256))
		case 5:
			mutated = append(mutated, mutated[at:]...)
		case 6:
			mutated = nil
		}
	}
	return mutated
}
