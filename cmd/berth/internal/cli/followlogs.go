package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/store"
)

// maxFollowed is the maximum number of workers whose output one command prints: each one is a call that
// waits.
const maxFollowed = 100

// stageWorkers are the workers of a stage: by index, the numbers that its stored reservations have.
type stageWorkers struct {
	numbers map[int32][]int32
	// living has the indexes with a worker that has not ended or may still get one.
	living map[int32]bool
	// reason is why a living reservation waits, if it does.
	reason string
}

// workersOf reads the workers of a stage.
func workersOf(ctx context.Context, c *client.Client, job, stage string) (stageWorkers, error) {
	found := stageWorkers{numbers: map[int32][]int32{}, living: map[int32]bool{}}
	list, err := whole(&berthv1.ListReservationsRequest{Job: job, Stage: stage, Versions: true, PageSize: pageSize},
		(*client.Client).ListPage)(c, ctx)
	for _, r := range list.GetReservations() {
		for _, w := range r.GetWorkers() {
			i, number := w.GetIndex(), w.GetNumber()
			if !slices.Contains(found.numbers[i], number) {
				found.numbers[i] = append(found.numbers[i], number)
				slices.Sort(found.numbers[i])
			}
			found.living[i] = found.living[i] || !client.Ended(r.GetState())
		}
		switch state := r.GetState(); {
		case client.Ended(state), state == berthv1.Reservation_ACTIVE, state == berthv1.Reservation_CANCELLING:
		default:
			found.reason = r.GetState().String()
			if r.GetReason() != "" {
				found.reason += ": " + r.GetReason()
			}
		}
	}
	return found, err
}

// onlyStage sets the stage of a request to the only stage of its job. The hint of its error has the arguments
// after the job.
func onlyStage(ctx context.Context, c *client.Client, cmd *cobra.Command, request *berthv1.ReadOutputRequest,
	after ...string) error {
	list, err := whole(&berthv1.ListReservationsRequest{Job: request.GetJob(), PageSize: pageSize},
		(*client.Client).ListPage)(c, ctx)
	if err != nil {
		return err
	}
	stages := map[string]bool{}
	for _, r := range list.GetReservations() {
		stages[r.GetStage()], request.Stage = true, r.GetStage()
	}
	switch len(stages) {
	case 0:
		return unknownKey(ctx, c, client.Key{Job: request.GetJob()})
	case 1:
		return nil
	}
	hint := ""
	for _, stage := range slices.Sorted(maps.Keys(stages))[:min(len(stages), maxChoices)] {
		if hint != "" {
			hint += " or "
		}
		hint += fmt.Sprintf("'%s %s'", cmd.CommandPath(), quoted(append([]string{request.GetJob() + "/" + stage}, after...)))
	}
	return usageError{fmt.Errorf("%s has %d stages: name one of them", request.GetJob(), len(stages)), cmd.CommandPath(),
		"did you mean " + hint + "?"}
}

// ofWorker returns a request for the output of one worker of a stage.
func ofWorker(request *berthv1.ReadOutputRequest, index, number int32) *berthv1.ReadOutputRequest {
	q := proto.CloneOf(request)
	q.Index, q.Number = index, number
	return q
}

// stageOutput writes the output of the newest worker of each index, each line with its worker.
func (a *app) stageOutput(ctx context.Context, c *client.Client, request *berthv1.ReadOutputRequest, found stageWorkers,
	lines int) error {
	for _, index := range slices.Sorted(maps.Keys(found.numbers)) {
		out := &markedLines{out: a.Out, mark: fmt.Sprintf("[%d] ", index), lock: &sync.Mutex{}}
		marked := *a
		marked.Out = out
		err := marked.writeOutput(ctx, c, ofWorker(request, index, 0), lines, "text")
		out.flush()
		switch {
		case fault.Is(err, fault.ReasonNotFound):
			fmt.Fprintf(a.Err, "No output of %s/%s/%d.\n", request.GetJob(), request.GetStage(), index)
		case err != nil:
			return err
		}
	}
	return nil
}

// followStage writes the output of all workers of a stage, each line with its worker, until all have
// ended and none is queued again. A new number of a worker index is followed too.
func (a *app) followStage(ctx context.Context, c *client.Client, request *berthv1.ReadOutputRequest, found stageWorkers,
	lines int) error {
	ctx, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	lock := &sync.Mutex{}
	failed := make(chan error, 1)
	followed := map[[2]int32]chan struct{}{} // closed when the worker has no more output
	ended := make(chan struct{})             // closed when no worker can begin any more
	several, first := len(found.numbers) > 1, map[int32]int32{}
	for index, numbers := range found.numbers {
		first[index] = numbers[len(numbers)-1]
	}
	read := func(index, number int32, done chan struct{}) {
		defer readers.Done()
		defer close(done)
		out := &markedLines{out: a.Out, lock: lock}
		if several {
			out.mark = fmt.Sprintf("[%d.%d] ", index, number)
		}
		q, lines := ofWorker(request, index, number), lines
		if number != first[index] { // it begins now
			q.Offset, q.Tail, lines = proto.Int64(0), nil, -1
		}
		marked := *a
		marked.Out, marked.Err = out, &markedLines{out: a.Err, lock: lock}
		for last := false; ; {
			err := marked.writeOutput(ctx, c, q, lines, "text")
			out.flush()
			if err == nil || ctx.Err() != nil {
				return
			}
			if !fault.Is(err, fault.ReasonNotFound) {
				select {
				case failed <- err:
				default:
				}
				return
			}
			if last { // it never began, or its executor has deleted the output
				fmt.Fprintf(marked.Err, "No output of %s/%s/%d.%d.\n", request.GetJob(), request.GetStage(), index, number)
				return
			}
			select {
			case <-ended:
				last = true
			default:
				_ = store.Sleep(ctx, a.every)
			}
		}
	}
	for waited := false; ; {
		for index, numbers := range found.numbers {
			for _, number := range numbers {
				if key := [2]int32{index, number}; number >= first[index] && followed[key] == nil {
					followed[key] = make(chan struct{})
					readers.Add(1)
					go read(index, number, followed[key])
				}
			}
		}
		if len(found.numbers) > maxFollowed {
			return fault.New(fault.Precondition, "", "%s/%s has grown to %d workers: name one of them as INDEX",
				request.GetJob(), request.GetStage(), len(found.numbers))
		}
		living := false
		for _, is := range found.living {
			living = living || is
		}
		if !living {
			close(ended)
			for _, done := range followed {
				select {
				case <-done:
				case err := <-failed:
					return err
				case <-ctx.Done():
					return nil
				}
			}
			return nil
		}
		if found.reason != "" && !waited {
			fmt.Fprintf(&markedLines{out: a.Err, lock: lock}, "berth: %s/%s is %s; waiting for its workers\n",
				request.GetJob(), request.GetStage(), found.reason)
			waited = true
		}
		select {
		case err := <-failed:
			return err
		default:
		}
		if store.Sleep(ctx, a.every) != nil {
			return nil
		}
		limited, cancel := a.limited(ctx)
		next, err := workersOf(limited, c, request.GetJob(), request.GetStage())
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			found = next
		case fault.Of(err).Kind != fault.Unavailable: // a failover passes
			return err
		}
	}
}

// untilBegun calls read until the output of a worker that waits begins.
func (a *app) untilBegun(ctx context.Context, c *client.Client, request *berthv1.ReadOutputRequest,
	read func() error) error {
	for waited := false; ; waited = true {
		err := read()
		if !request.GetFollow() || !fault.Is(err, fault.ReasonNotFound) {
			return err
		}
		limited, cancel := a.limited(ctx)
		found, missing := workersOf(limited, c, request.GetJob(), request.GetStage())
		cancel()
		numbers := found.numbers[request.GetIndex()]
		if missing != nil || !found.living[request.GetIndex()] ||
			request.GetNumber() > 0 && !slices.Contains(numbers, request.GetNumber()) {
			return err
		}
		if !waited {
			fmt.Fprintf(a.Err, "berth: %s/%s/%d has no output yet; waiting\n", request.GetJob(), request.GetStage(),
				request.GetIndex())
		}
		if store.Sleep(ctx, a.every) != nil {
			return nil
		}
	}
}

// markedLines writes whole lines, each with a mark. Writers with the same lock do not mix their lines.
type markedLines struct {
	out  io.Writer
	mark string
	lock *sync.Mutex
	rest []byte
}

// Write implements io.Writer.
func (m *markedLines) Write(text []byte) (int, error) {
	m.rest = append(m.rest, text...)
	end := bytes.LastIndexByte(m.rest, '\n') + 1
	var b bytes.Buffer
	for line := range bytes.Lines(m.rest[:end]) {
		b.WriteString(m.mark)
		b.Write(line)
	}
	m.rest = append(m.rest[:0:0], m.rest[end:]...)
	m.lock.Lock()
	defer m.lock.Unlock()
	_, err := m.out.Write(b.Bytes())
	return len(text), err
}

// flush writes a last line that has no end.
func (m *markedLines) flush() {
	if len(m.rest) > 0 {
		_, _ = m.Write([]byte{'\n'})
	}
}
