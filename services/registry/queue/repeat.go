package queue

import (
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// maxRequests bounds the requests that a version or a stage remembers, the newest last.
const maxRequests = 32

// remember stores the answer to a request with the version that it made or changed.
func remember(r *model.Reservation, mark model.RequestMark) {
	if mark.ID != "" {
		r.Requests = newest(append(slices.Clone(r.Requests), mark))
	}
}

// rememberIdle stores a request that changed nothing with its stage. A stage without a
// record never had a reservation, and remembers nothing.
func (c *Core) rememberIdle(key model.Key, mark model.IdleRequest) {
	stage := c.stage(key)
	if mark.ID == "" || c.stages[stageKey(key)] == nil {
		return
	}
	stage.Idle = newest(append(slices.Clone(stage.Idle), mark))
	c.decide(model.Effect{Puts: []model.Record{&stage}})
}

func newest[T any](marks []T) []T { return marks[max(0, len(marks)-maxRequests):] }

// remembered returns the version of a key, ended ones included, that a request made or
// changed, and the answer.
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

// idle returns an earlier request to a stage that changed nothing.
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
// cancelled within a scope, and whether there was one. It returns an error if the ID was
// used for another request.
func (c *Core) earlier(of model.Key, mark model.RequestMark) (count int, found bool, err error) {
	if mark.ID == "" {
		return 0, false, nil
	}
	for key := range within(&c.keys, of, model.Key{}) {
		switch v, known := c.remembered(key, mark.ID); {
		case v == nil:
		case !request.Repeats(known.Call, mark.Call):
			err = request.OtherUnderID(mark.ID)
		case known.Cancelled > 0:
			return int(known.Cancelled), true, nil
		}
	}
	idle, found := c.idle(of, mark.ID)
	if found && !request.Repeats(idle.Call, mark.Call) {
		err = request.OtherUnderID(mark.ID)
	}
	return 0, found, err
}

// changeAll changes items in as many effects as they need. Only the record of the last
// item remembers the request: a repeat that finds the mark knows that all was done, and
// one that does not changes the rest.
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

// makeRoom decides an effect that is full and begins the next one.
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
