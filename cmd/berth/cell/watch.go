package cell

import (
	"context"
	"slices"
	"time"

	"berth.dev/client"
)

const (
	// maxWatches is the maximum number of jobs that the driver watches over one connection. Each
	// has a stream of events, or makes a call. A gateway allows 1,000 of both for each connection
	// by default.
	maxWatches = 500
	// maxReads is the maximum number of other streams of events at a time.
	maxReads = 100
)

// connection is a client of the child for watches.
type connection struct {
	*client.Client
	// watches is the number of watches that use it. Driver.mu guards it.
	watches int
}

// watch follows a job of the child as long as it has holds. Driver.mu guards it.
type watch struct {
	// state is the state of the job; nil until it is known.
	state *client.Job
	holds int
	stop  context.CancelFunc
	// connection is nil until there is one.
	connection *connection
}

// watch makes the driver follow the job of the hold. d.mu must be locked.
func (h *hold) watch() {
	d := h.driver
	if h.watched || d.closed {
		return
	}
	h.watched = true
	w := d.watches[h.key.Job]
	if w == nil {
		w = &watch{}
		var ctx context.Context
		ctx, w.stop = context.WithCancel(d.life)
		d.watches[h.key.Job] = w
		job := h.key.Job
		d.running.Go(func() { d.followJob(ctx, job, w) })
	}
	if w.holds++; w.state != nil {
		h.changed = true // an event may have come before
		h.notify()
	}
}

// unwatch ends watch. d.mu must be locked.
func (h *hold) unwatch() {
	if !h.watched {
		return
	}
	h.watched = false
	w := h.driver.watches[h.key.Job]
	if w.holds--; w.holds == 0 {
		w.stop()
		delete(h.driver.watches, h.key.Job)
	}
}

// followJob wakes the holds of a job when something about them has changed.
func (d *Driver) followJob(ctx context.Context, job string, w *watch) {
	defer d.disconnect(w)
	for ctx.Err() == nil {
		c, err := d.connect(w)
		if err != nil {
			d.log.Warn("the child cannot be watched", "error", err)
			d.pause(ctx)
			continue
		}
		for change, err := range c.Watch(ctx, job) {
			if err != nil {
				d.log.Warn("a job of the child cannot be watched", "job", job, "error", err)
				break
			}
			d.mu.Lock()
			w.state = change.Job
			for _, h := range d.affected(job, change) {
				h.changed = true
				h.notify()
			}
			d.mu.Unlock()
		}
		d.pause(ctx)
	}
}

// pause waits before a repeat.
func (d *Driver) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryAfter):
	}
}

// connect returns the connection of a watch. It opens another one if all are in full use.
func (d *Driver) connect(w *watch) (*connection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.connection != nil {
		return w.connection, nil
	}
	at := slices.IndexFunc(d.connections, func(c *connection) bool { return c.watches < maxWatches })
	if at < 0 {
		child := d.cfg.Child
		if d.cfg.DialWatch != nil {
			var err error
			if child, err = d.cfg.DialWatch(); err != nil { // it does not wait for a connection
				return nil, err
			}
		}
		at, d.connections = len(d.connections), append(d.connections, &connection{Client: child})
	}
	w.connection = d.connections[at]
	w.connection.watches++
	return w.connection, nil
}

// disconnect ends the use of a connection by a watch. The last one closes it.
func (d *Driver) disconnect(w *watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := w.connection
	if c == nil {
		return
	}
	if c.watches--; c.watches > 0 {
		return
	}
	d.connections = slices.DeleteFunc(d.connections, func(one *connection) bool { return one == c })
	if d.cfg.DialWatch != nil {
		if err := c.Close(); err != nil {
			d.log.Warn("a connection to the child is not closed", "error", err)
		}
	}
}

// reader returns the client of the watch of a job for one more stream of events, or nil if there
// is none. The caller must call done after the stream.
func (d *Driver) reader(job string) (c *client.Client, done func()) {
	select {
	case d.reads <- struct{}{}:
	case <-d.life.Done():
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.watches[job]; w != nil && w.connection != nil {
		return w.connection.Client, func() { <-d.reads }
	}
	<-d.reads
	return nil, nil
}

// affected returns the holds that a change is about: all of the job if it was listed. d.mu must
// be locked.
func (d *Driver) affected(job string, change client.Change) []*hold {
	if change.Event != nil {
		if h := d.holds[change.Event.GetReservation()]; h != nil && h.watched && h.key.Job == job {
			return []*hold{h}
		}
		return nil
	}
	var list []*hold
	for _, h := range d.holds {
		if h.watched && h.key.Job == job {
			list = append(list, h)
		}
	}
	return list
}
