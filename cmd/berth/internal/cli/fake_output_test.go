package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// fakePart is the maximum size of the data in an answer of the fake. It is so small that
// most outputs have several parts.
const fakePart = 16

// workerOutput is the output of a worker. base is the position of the first byte of text.
type workerOutput struct {
	job, stage    string
	index, number int32
	stream        berthv1.ReadOutputRequest_Stream
	executor      string
	base          int64
	ended         bool
	text          string
}

// output sets the output of a worker: output JOB/STAGE/INDEX.NUMBER STREAM EXECUTOR BASE
// running|ended TEXT…, with \n for line breaks.
func (f *fake) output(t *testing.T, words []string) {
	t.Helper()
	o := workerOutput{executor: words[2], ended: words[4] == "ended",
		stream: berthv1.ReadOutputRequest_Stream(berthv1.ReadOutputRequest_Stream_value[words[1]]),
		text:   strings.ReplaceAll(strings.Join(words[5:], " "), "\\n", "\n")}
	parts := strings.Split(words[0], "/")
	o.job, o.stage = parts[0], parts[1]
	if _, err := fmt.Sscanf(parts[2], "%d.%d", &o.index, &o.number); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.base, err = strconv.ParseInt(words[3], 10, 64); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outputs = append(f.outputs, o)
}

func (f *fake) ReadOutput(_ context.Context, q *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.GetTail() > 1<<20 {
		return nil, fault.BadField(fault.ReasonInvalid, "tail", "must be between 0 and 1048576, got %d", q.GetTail())
	}
	var found *workerOutput
	for i, o := range f.outputs {
		stream := max(q.GetStream(), berthv1.ReadOutputRequest_STDOUT)
		if o.job == q.GetJob() && o.stage == q.GetStage() && o.index == q.GetIndex() && o.stream == stream &&
			(q.GetNumber() == 0 || q.GetNumber() == o.number) && (q.GetExecutor() == "" || q.GetExecutor() == o.executor) &&
			(found == nil || o.number > found.number) {
			found = &f.outputs[i]
		}
	}
	if found == nil && f.unready != "" {
		return nil, notReadyGateway(f.unready)
	}
	if found == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "no executor has the output")
	}
	end := found.base + int64(len(found.text))
	tail := int64(wire.DefaultTail)
	if q.Tail != nil {
		tail = int64(q.GetTail())
	}
	offset := max(found.base, end-tail)
	if q.Offset != nil {
		offset = max(found.base, q.GetOffset())
	}
	data := found.text[offset-found.base:]
	data = data[:min(len(data), fakePart)]
	return &berthv1.ReadOutputAnswer{Executor: found.executor, Number: found.number, Epoch: 7, Offset: offset,
		Data: []byte(data), End: end, Complete: found.ended && offset+int64(len(data)) == end}, nil
}
