package queue

import (
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// maxRequests bounds the requests that a version or a stage remembers. The newest are
// kept, the newest last.
const maxRequests = 32

// remember stores the mark of a request in the version that the request made or changed.
func remember(r *model.Reservation, mark model.RequestMark) {
	if mark.ID != "" {
		r.Requests = newest(append(slices.Clone(r.Requests), mark))
	}
}

// rememberIdle stores a request that changed nothing in the record of its stage. If a
// stage has no record, it never had a reservation, and nothing is remembered.
func (c *Core) rememberIdle(key model.Key, mark model.IdleRequest) {
	stage := c.stage(key)
	if mark.ID == "" || c.stages[stageKey(key)] == nil {
		return
	}
	stage.Idle = newest(append(slices.Clone(stage.Idle), mark))
	c.decide(model.Effect{Puts: []model.Record{&stage}})
}

func newest[T any](marks []T) []T { return marks[max(0, len(marks)-maxRequests):] }

// remembered returns the version of a key that a request made or changed, and the mark of
// the request. The version may have ended.
func (c *Core) remembered(key model.Key, id string) (*version, model.RequestMark) {
	if id == "" {
		return nil, model.RequestMark{}
	}
	for _, v := range slices.Backward(c.byKey[key]) {
		for _, mark := range slices.Backward(v.r.Requests) {
			if mark.ID == id {
				return v, mark
			}
		}
	}
	return nil, model.RequestMark{}
}

// idle returns the mark of an earlier request to a stage that changed nothing.
func (c *Core) idle(key model.Key, id string) (model.IdleRequest, bool) {
	if id != "" {
		for _, idle := range slices.Backward(c.stage(key).Idle) {
			if idle.ID == id {
				return idle, true
			}
		}
	}
	return model.IdleRequest{}, false
}

// earlier returns how many versions or workers an earlier call of the same request
// cancelled within a scope, and reports whether there was such a call. It returns an
// error if the ID was used for another request.
func (c *Core) earlier(of model.Key, mark model.RequestMark) (count int, found bool, err error) {
	if mark.ID == "" {
		return 0, false, nil
	}
	for key := range within(&c.keys, of, model.Key{}) {
		switch v, known := c.remembered(key, mark.ID); {
		case v == nil:
		case known.Call != mark.Call:
			err = request.OtherUnderID(mark.ID)
		case known.Cancelled > 0:
			return int(known.Cancelled), true, nil
		}
	}
	idle, found := c.idle(of, mark.ID)
	if found && idle.Call != mark.Call {
		err = request.OtherUnderID(mark.ID)
	}
	return 0, found, err
}

// changeAll changes items in as many effects as they need. Only the record of the last
// item remembers the request. So a repeat that finds the mark knows that all items were
// changed, and a repeat that does not find it changes the rest.
func changeAll[T any](c *Core, items []T, mark model.RequestMark, change func(*model.Effect, T) *model.Reservation) {
	var effect model.Effect
	for i, item := range items {
		c.makeRoom(&effect)
		changed := change(&effect, item)
		if i == len(items)-1 {
			remember(changed, mark)
			c.decide(effect)
		}
	}
}

// makeRoom decides a full effect and begins the next one.
func (c *Core) makeRoom(effect *model.Effect) {
	if isFull(*effect) {
		c.decide(*effect)
		*effect = model.Effect{}
	}
}

func isFull(effect model.Effect) bool {
	if len(effect.Puts)+len(effect.Events) >= 2*effectReservations {
		return true
	}
	bytes := 0
	for _, record := range effect.Puts {
		if r, ok := record.(*model.Reservation); ok {
			bytes += request.Size(r)
		}
	}
	return bytes >= effectBytes
}
