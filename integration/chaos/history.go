package chaos

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// checkTimeout bounds the check of one key's calls. Most checks take less than a millisecond.
const checkTimeout = 30 * time.Second

// verb is the kind of a client's call.
type verb string

const (
	upsert verb = "upsert"
	cancel verb = "cancel"
	get    verb = "get"
)

// request is one call about one key.
type request struct {
	key  client.Key
	verb verb
	// shape is different for requests with different bodies.
	shape string
}

// outcome is the outcome of a call. Known is false if the outcome is unknown.
type outcome struct {
	known bool
	// version and state are the version and the state in the answer; 0 for NOT_FOUND.
	version version
	state   berthv1.Reservation_State
	// part is set if the version is a requeue.
	part      bool
	change    berthv1.UpsertReservationRequest_Change
	cancelled int
}

func (a request) String() string { return fmt.Sprintf("%s %s %s", a.verb, a.key, a.shape) }

func (t outcome) String() string {
	if !t.known {
		return "unknown"
	}
	return fmt.Sprintf("version %d.%d %v %v cancelled %d", t.version>>32, t.version&math.MaxUint32, t.state, t.change,
		t.cancelled)
}

// history records calls and outcomes. It is safe for concurrent use.
type history struct {
	begun time.Time

	mu    sync.Mutex
	calls []porcupine.Operation
	acks  []time.Duration // times of the answers to upserts and cancels
	// longest is the duration of the slowest call.
	longest time.Duration
	slowest request
}

// record records one call. Each client has a different number.
func (h *history) record(who int, a request, call func() outcome) outcome {
	begun := time.Since(h.begun)
	t := call()
	ended := time.Since(h.begun)
	op := porcupine.Operation{ClientId: who, Input: a, Call: int64(begun), Output: t, Return: int64(ended)}
	if !t.known {
		op.Return = math.MaxInt64 // the call may take effect at any later time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, op)
	if ended-begun > h.longest {
		h.longest, h.slowest = ended-begun, a
	}
	if t.known && a.verb != get {
		h.acks = append(h.acks, ended)
	}
	return t
}

// counts returns the number of calls of each verb, and the number of calls of each verb
// whose outcome is unknown.
func (h *history) counts() (n, unknown map[verb]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, unknown = map[verb]int{}, map[verb]int{}
	for _, op := range h.calls {
		n[op.Input.(request).verb]++
		if !op.Output.(outcome).known {
			unknown[op.Input.(request).verb]++
		}
	}
	return n, unknown
}

// changes returns the number of acknowledged changes between two times.
func (h *history) changes(from, to time.Duration) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, at := range h.acks {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// gap returns the longest time without an acknowledged change, and the begin of that time.
func (h *history) gap() (longest, from time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	acks := slices.Sorted(slices.Values(h.acks))
	for n := 1; n < len(acks); n++ {
		if d := acks[n] - acks[n-1]; d > longest {
			longest, from = d, acks[n-1]
		}
	}
	return longest, from
}

// check returns the keys whose history is not linearizable, each with its calls, the number
// of keys, and the number of keys whose check took too long, which proves nothing.
func (h *history) check(chosen func(client.Key) bool, model porcupine.Model) (found []string, keys, open int) {
	h.mu.Lock()
	byKey := map[client.Key][]porcupine.Operation{}
	for _, op := range h.calls {
		if key := op.Input.(request).key; chosen(key) {
			byKey[key] = append(byKey[key], op)
		}
	}
	h.mu.Unlock()
	for key, calls := range byKey {
		switch porcupine.CheckOperationsTimeout(model, calls, checkTimeout) {
		case porcupine.Illegal:
			found = append(found, fmt.Sprintf("the answers about %s are not linearizable:\n%s", key, transcript(calls)))
		case porcupine.Unknown:
			open++
		}
	}
	slices.Sort(found)
	return found, len(byKey), open
}

func transcript(calls []porcupine.Operation) string {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range calls {
		ended := "-"
		if op.Return != math.MaxInt64 {
			ended = fmt.Sprintf("%.3f", time.Duration(op.Return).Seconds())
		}
		fmt.Fprintf(&b, "  %8.3f to %8s client %d: %v: %v\n", time.Duration(op.Call).Seconds(), ended, op.ClientId, op.Input,
			op.Output)
	}
	return b.String()
}
