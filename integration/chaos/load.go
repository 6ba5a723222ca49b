package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/resource"
)

const (
	// deadline is the deadline of each call. If a fault lasts longer, the outcome may stay
	// unknown.
	deadline = 10 * time.Second
	// pause is the longest time between two calls of a client.
	pause = 40 * time.Millisecond
	// rounds is the number of calls after which a client uses other shared keys. The
	// check of a longer history would take too long.
	rounds = 20
	// slots is the number of current shared keys of each kind.
	slots = 3
	// held is the maximum number of batches that a client has on hosts at the same time.
	held = 3
)

// The jobs of the shared keys. In addition, each client has its own job on the hosts.
const (
	jobWaiting = "waiting"
	jobRunning = "running"
)

func hostJob(who int) string { return fmt.Sprintf("hosts-%d", who) }

// load makes the clients' calls and records their outcomes.
type load struct {
	history *history
	// marks is the file to which workers on hosts append a line at their start.
	marks string
	// copies is the directory with a copy of the data that workers wrote to each volume. Workers
	// whose volume differs from its copy, or is not that of their index, append its ID to the
	// file lost there.
	copies string
	// lifetimes is set if the batches on hosts use lifetimes, restarts, readiness, volumes and
	// holds.
	// Older versions of Berth refuse or ignore them.
	lifetimes bool

	mu         sync.Mutex
	acked      map[string]acked // by uid
	unexpected []string
}

// acked is a version that an upsert returned. An upsert that queues nothing returns a
// requeue if the key has no other version.
type acked struct {
	key     client.Key
	requeue bool
}

// unannounced returns the acknowledged versions for which no event reports that they were
// queued. That event is RESERVATION_QUEUED, or RESERVATION_REQUEUED for a requeue.
func (l *load) unannounced(queued, requeued map[string]bool) []string {
	var found []string
	for _, uid := range slices.Sorted(maps.Keys(l.acked)) {
		a := l.acked[uid]
		if queued[uid] || a.requeue && requeued[uid] {
			continue
		}
		found = append(found, fmt.Sprintf("%s (%s, a requeue: %v) was acknowledged, but has no event that it was queued",
			a.key, uid, a.requeue))
	}
	return found
}

func newLoad(h *history, dir string, lifetimes bool) *load {
	return &load{history: h, marks: filepath.Join(dir, "starts"), copies: filepath.Join(dir, "copies"),
		lifetimes: lifetimes, acked: map[string]acked{}}
}

// run makes the calls of one client until ctx ends. It completes a call in flight.
func (l *load) run(ctx context.Context, c *client.Client, who int, r *rand.Rand) {
	var own []client.Key
	for round := 0; ctx.Err() == nil; round++ {
		generation := round / rounds
		if round%rounds == 0 && generation > 1 {
			// Each client cancels shared keys of an old generation.
			for _, job := range []string{jobWaiting, jobRunning} {
				l.call(c, who, request{key: shared(job, who%slots, generation-2), verb: cancel}, nil)
			}
		}
		switch n := r.IntN(10); {
		case n < 4:
			l.any(c, who, shared(jobWaiting, r.IntN(slots), generation), r, waitingBatch)
		case n < 7:
			l.any(c, who, shared(jobRunning, r.IntN(slots), generation), r, runningBatch)
		case len(own) < held || n == 7:
			key := client.Key{Job: hostJob(who), Stage: fmt.Sprintf("s%d", round), Name: "main"}
			own = append(own, key)
			l.call(c, who, request{key: key, verb: upsert, shape: "first"}, l.hostBatch(key, r))
		case n == 8:
			l.any(c, who, own[r.IntN(len(own))], r, l.hostBatch)
		case l.lifetimes:
			l.bind(c, own[r.IntN(len(own))])
		}
		for len(own) > held {
			l.call(c, who, request{key: own[0], verb: cancel}, nil)
			own = own[1:]
		}
		<-time.After(between(r, 0, pause)) // clients pause between calls
	}
}

func shared(job string, slot, generation int) client.Key {
	return client.Key{Job: job, Stage: fmt.Sprintf("g%d-%d", generation, slot), Name: "main"}
}

// any makes a random call about a key.
func (l *load) any(c *client.Client, who int, key client.Key, r *rand.Rand,
	batch func(client.Key, *rand.Rand) *berthv1.Reservation) {
	switch n := r.IntN(10); {
	case n < 5:
		body := batch(key, r)
		l.call(c, who, request{key: key, verb: upsert, shape: shapeOf(body)}, body)
	case n < 7:
		l.call(c, who, request{key: key, verb: cancel}, nil)
	default:
		l.call(c, who, request{key: key, verb: get}, nil)
	}
}

func shapeOf(r *berthv1.Reservation) string {
	return fmt.Sprintf("%d×%s", r.GetCount(), r.GetTask().GetPayload())
}

// call makes one call and records it.
func (l *load) call(c *client.Client, who int, a request, body *berthv1.Reservation) {
	l.history.record(who, a, func() outcome {
		ctx, stop := context.WithTimeout(context.Background(), deadline)
		defer stop()
		var r *berthv1.Reservation
		var t outcome
		var err error
		switch a.verb {
		case upsert:
			r, err = c.Reserve(ctx, body)
		case cancel:
			t.cancelled, err = c.Cancel(ctx, a.key)
		case get:
			r, err = c.Get(ctx, a.key)
		}
		f := fault.Of(err)
		switch {
		case err == nil:
		case f.Kind == fault.NotFound && a.verb == get:
			return outcome{known: true}
		default:
			// The expireAt of a request that arrives late has passed.
			late := a.verb == upsert && f.Kind == fault.Invalid && body.GetExpireAt() != nil
			if f.Kind != fault.Unavailable && !late {
				l.addUnexpected("%v: %v", a, err)
			}
			return outcome{}
		}
		t.known, t.version, t.state, t.change = true, versionOf(r.GetUid()), r.GetState(), r.GetChange()
		t.part = r.GetParent() != ""
		if a.verb == upsert {
			l.mu.Lock()
			l.acked[r.GetUid()] = acked{a.key, t.part && t.change != berthv1.UpsertReservationRequest_CREATED}
			l.mu.Unlock()
		}
		return t
	})
}

// bind binds a batch, which may be held. It may not exist if the outcome of its request is
// unknown. The auditor checks what a bind may do.
func (l *load) bind(c *client.Client, key client.Key) {
	ctx, stop := context.WithTimeout(context.Background(), deadline)
	defer stop()
	_, err := c.Bind(ctx, &berthv1.BindReservationRequest{Job: key.Job, Stage: key.Stage})
	switch f := fault.Of(err); {
	case err == nil, f.Reason == fault.ReasonNotHeld, f.Kind == fault.NotFound, f.Kind == fault.Unavailable:
	default:
		l.addUnexpected("bind of %v: %v", key, err)
	}
}

func (l *load) addUnexpected(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unexpected = append(l.unexpected, fmt.Sprintf(format, args...))
}

// waitingBatch returns a batch that fits on no executor.
func waitingBatch(key client.Key, r *rand.Rand) *berthv1.Reservation {
	return &berthv1.Reservation{
		Job: key.Job, Stage: key.Stage, Count: 1 + r.Int32N(3),
		Constraints: &berthv1.Constraints{Sku: "nowhere"}, Task: &berthv1.Task{Payload: fmt.Append(nil, r.IntN(2))},
	}
}

// runningBatch returns a batch of simulated workers that run until they are stopped.
func runningBatch(key client.Key, r *rand.Rand) *berthv1.Reservation {
	return &berthv1.Reservation{Job: key.Job, Stage: key.Stage, Count: 1 + r.Int32N(40),
		Constraints: &berthv1.Constraints{Sku: simName}, Task: &berthv1.Task{}}
}

// hostBatch returns a batch of processes, each of which appends a mark at its start.
func (l *load) hostBatch(key client.Key, r *rand.Rand) *berthv1.Reservation {
	const mark = `echo "$BERTH_JOB/$BERTH_STAGE/$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER@$BERTH_EPOCH" >> "$MARKS"; `
	script := []string{"exit 0", "sleep 0.3", "exit 1", "exec sleep 1000"}[r.IntN(4)]
	batch := &berthv1.Reservation{
		Job: key.Job, Stage: key.Stage, Count: 1 + r.Int32N(2), Constraints: &berthv1.Constraints{Sku: hostName},
		Task: &berthv1.Task{Command: "sh", Args: []string{"-ec", script}, Env: map[string]string{"MARKS": l.marks}},
	}
	if l.lifetimes {
		addLifetime(batch, r)
		l.addVolume(batch, r)
		if r.IntN(3) == 0 {
			batch.Hold = berthv1.Hold_HOLD.Enum()
			batch.HoldTimeout = durationpb.New(between(r, 500*time.Millisecond, 3*time.Second))
		}
	}
	batch.Task.Args[1] = mark + batch.GetTask().GetArgs()[1]
	return batch
}

// addLifetime lets some batches on hosts expire, restart their workers, and wait for the
// readiness of their workers. Some of these workers never report it.
func addLifetime(batch *berthv1.Reservation, r *rand.Rand) {
	if r.IntN(3) == 0 {
		batch.ExpireAt = timestamppb.New(time.Now().Add(between(r, 100*time.Millisecond, 3*time.Second)))
	}
	if r.IntN(2) == 0 {
		batch.Restart, batch.OnWorkerLoss = new("ON_FAILURE"), new("REPLACE")
	}
	if task := batch.GetTask(); r.IntN(3) == 0 {
		task.Readiness, task.StartTimeout = berthv1.Readiness_REPORTED.Enum(), durationpb.New(2*time.Second)
		if r.IntN(4) > 0 {
			task.Args[1] = `echo > "$BERTH_READY_PIPE"; ` + task.GetArgs()[1]
		}
	}
}

// keepData is a part of the script of a worker on a volume. The first worker on a volume
// writes data to it, and then a copy elsewhere. Every later one compares the two. Both files
// get their names when they are complete, so a worker may be killed at any time.
const keepData = `copy="$COPIES/$BERTH_VOLUME_ID"; data="$BERTH_VOLUME/data"; ` +
	`if [ -e "$copy" ]; then cmp -s "$copy" "$data" || echo "$BERTH_VOLUME_ID" >> "$COPIES/lost"; ` +
	`else head -c 4096 /dev/urandom > "$data.new"; mv "$data.new" "$data"; ` +
	`cp "$data" "$copy.$$"; mv "$copy.$$" "$copy"; fi; `

// keepVolume is a part of the script of a worker of a batch whose indexes wait for their volumes.
// All workers of an index of the batch must be on one volume: the first writes its ID, and every
// later one compares it.
const keepVolume = `mark="$COPIES/$BATCH.$BERTH_WORKER_INDEX.mark"; if [ -e "$mark" ]; then ` +
	`[ "$(cat "$mark")" = "$BERTH_VOLUME_ID" ] || echo "$BERTH_VOLUME_ID" >> "$COPIES/lost"; ` +
	`else echo "$BERTH_VOLUME_ID" > "$mark.$$"; mv "$mark.$$" "$mark"; fi; `

// addVolume gives some batches on hosts a volume for each worker index. The volumes are kept
// for a short time only, because they use slots.
func (l *load) addVolume(batch *berthv1.Reservation, r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	batch.Volume = &berthv1.VolumeRequest{Resource: resource.Slots,
		KeepFor: durationpb.New(between(r, 0, 2*time.Second))}
	task := batch.GetTask()
	task.Env["COPIES"] = l.copies
	if r.IntN(2) == 0 {
		batch.Volume.OnLoss = new("REPLACE")
	} else {
		task.Env["BATCH"] = fmt.Sprintf("batch-%d", r.Uint64())
		task.Args[1] = keepVolume + task.GetArgs()[1]
	}
	task.Args[1] = keepData + task.GetArgs()[1]
}
