package dispatch

import (
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The core answers an input of an unknown type, so the caller does not wait forever.
func TestAnInputOfAnUnknownTypeIsAnswered(t *testing.T) {
	c := New(Config{})
	c.Step(time.Unix(1, 0), model.Elected{Term: 1, Revision: 1})
	actions := c.Step(time.Unix(1, 0), model.Input{Token: 7, Request: struct{}{}})
	if len(actions) != 1 {
		t.Fatalf("answered by %+v", actions)
	}
	if reply, is := actions[0].(model.Reply); !is || reply.Token != 7 || fault.Of(reply.Err).Kind != fault.Internal {
		t.Errorf("answered by %+v", actions[0])
	}
}
