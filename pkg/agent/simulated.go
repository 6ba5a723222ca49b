package agent

import (
	"encoding/json"
	"sync"
	"time"

	"berth.dev/api/fault"
)

// Simulated is a driver without processes. A worker runs until it is stopped. A payload
// such as {"runFor": "2s", "exitCode": 3} makes the worker end by itself after that time
// and with that code; both fields are optional. The zero value is ready to use, has no
// state, and may serve any number of agents.
type Simulated struct{}

// script is the payload of a simulated worker.
type script struct {
	RunFor   string `json:"runFor"`
	ExitCode *int32 `json:"exitCode"`
}

// Start implements Driver. It ignores a payload that is not a script, such as the payload
// of a task for a real driver.
func (Simulated) Start(spec Spec, ended func(Exit)) (Handle, error) {
	var s script
	if len(spec.Payload) > 0 && json.Unmarshal(spec.Payload, &s) != nil {
		s = script{}
	}
	w := &simulated{ended: ended}
	if s.RunFor == "" && s.ExitCode == nil {
		return w, nil
	}
	var after time.Duration
	if s.RunFor != "" {
		var err error
		if after, err = time.ParseDuration(s.RunFor); err != nil {
			return nil, fault.New(fault.Invalid, fault.ReasonStartFailed, "payload: runFor: %v", err)
		}
	}
	code := s.ExitCode
	if code == nil {
		code = new(int32)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(after, func() { w.end(exitOf(*code, false)) })
	return w, nil
}

// Adopt implements Driver: no simulated worker outlives its process.
func (Simulated) Adopt(func(Spec, Exit)) ([]Adopted, error) { return nil, nil }

// Close implements Driver.
func (Simulated) Close() error { return nil }

type simulated struct {
	mu    sync.Mutex
	timer *time.Timer
	ended func(Exit)
}

// Stop implements Handle. The worker ends at once, as if by SIGTERM.
func (w *simulated) Stop(time.Duration) error {
	w.end(exitOf(128+15, true))
	return nil
}

// Forget implements Handle.
func (w *simulated) Forget() {}

func (w *simulated) end(x Exit) {
	w.mu.Lock()
	ended := w.ended
	w.ended = nil
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if ended != nil {
		ended(x)
	}
}

func exitOf(code int32, stopped bool) Exit { return Exit{Code: &code, Stopped: stopped} }
