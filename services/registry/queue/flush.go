package queue

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Flush is the request of a model.Input that cancels all that is queued of a
// job or in a group: what waits and what only holds a lease. What was handed
// over stays. It is answered by Cancelled; a job or group that is not there
// has nothing queued.
type Flush struct {
	// Job, or the id of a Group as Pending shows it: one of the two.
	Job, Group string
	// RequestID makes a repeat answer the first result. A flush that found
	// nothing is not remembered.
	RequestID string
}

func (f Flush) validate() error {
	switch {
	case f.Job == "" && f.Group == "":
		return fault.BadField(fault.ReasonRequired, "job", "neither job nor group is given")
	case f.Job != "" && f.Group != "":
		return fault.BadField(fault.ReasonInvalid, "group", "is given beside job: give one of the two")
	}
	for _, field := range []struct{ name, value string }{{"job", f.Job}, {"group", f.Group}, {"requestId", f.RequestID}} {
		if field.value != "" {
			if err := checkName(field.name, field.value, maxName); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush ends what is queued, in order of keys, many to an effect. The last
// effect alone carries the mark of the call: a repeat that finds it knows that
// everything was done, and one that does not goes on.
func (c *Core) flush(token uint64, request Flush) {
	if err := request.validate(); err != nil {
		c.refuse(token, err)
		return
	}
	call := request.call()
	var queued []*version
	for key := range c.keys.From(model.Key{Job: request.Job}) {
		if request.Job != "" && key.Job != request.Job {
			break
		}
		switch _, mark := c.remembered(key, request.RequestID); {
		case !repeats(mark.Call, call):
			c.refuse(token, anotherCall(request.RequestID))
			return
		case mark.Cancelled > 0:
			c.reply(token, func() any { return Cancelled{Count: int(mark.Cancelled)} })
			return
		}
		for _, v := range c.byKey[key] {
			if v.is(model.Queued) && v.header == nil && !v.taken && (request.Group == "" || v.group == request.Group) {
				queued = append(queued, v)
			}
		}
	}
	message := "an operator flushed the queue of its group"
	if request.Job != "" {
		message = "an operator flushed what its job had queued"
	}
	var effect model.Effect
	for i, v := range queued {
		c.makeRoom(&effect)
		last := c.finish(&effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonFlushed, message)
		if i == len(queued)-1 {
			remember(last, model.RequestMark{ID: request.RequestID, Cancelled: int32(len(queued)), Call: call})
			c.decide(effect)
		}
	}
	c.reply(token, func() any { return Cancelled{Count: len(queued)} })
}
