package agent

import (
	"encoding/json"
	"sync"
	"time"

	"berth.dev/api/fault"
)

// Simulated is a driver without processes. A worker runs until it is stopped. A payload
// such as {"runFor": "2s", "exitCode": 3, "readyAfter": "1s"} makes the worker end by
// itself after that time and with that code. With readiness REPORTED the worker reports
// after readyAfter that it is ready. With {"executor": "sim-0"} all this applies only on
// that executor. All fields are optional. The signals SIGINT, SIGKILL, SIGQUIT and SIGTERM end the
// worker. The zero value is ready to use, has no state, and may serve any number of agents. Volumes
// are only in the memory of these agents.
type Simulated struct{}

// script is the payload of a simulated worker.
type script struct {
	Executor   string `json:"executor"`
	RunFor     string `json:"runFor"`
	ReadyAfter string `json:"readyAfter"`
	ExitCode   *int32 `json:"exitCode"`
}

// after parses a duration of a script.
func after(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fault.New(fault.Invalid, fault.ReasonStartFailed, "payload: %s: %v", field, err)
	}
	return d, nil
}

// Start implements Driver. It ignores a payload that is not a script, such as the payload
// of a task for a real driver, and a script for another executor.
func (Simulated) Start(spec Spec, ended func(Exit)) (Handle, error) {
	var s script
	if len(spec.Payload) > 0 && json.Unmarshal(spec.Payload, &s) != nil ||
		s.Executor != "" && s.Executor != spec.Executor {
		s = script{}
	}
	runFor, err := after("runFor", s.RunFor)
	if err != nil {
		return nil, err
	}
	loadFor, err := after("readyAfter", s.ReadyAfter)
	if err != nil {
		return nil, err
	}
	w := &simulated{ended: ended}
	w.mu.Lock()
	defer w.mu.Unlock()
	if spec.loads() {
		w.timers = append(w.timers, time.AfterFunc(loadFor, spec.Ready))
	}
	if s.RunFor != "" || s.ExitCode != nil {
		code := s.ExitCode
		if code == nil {
			code = new(int32)
		}
		w.timers = append(w.timers, time.AfterFunc(runFor, func() { w.end(exitOf(*code, false)) }))
	}
	return w, nil
}

// Adopt implements Driver: no simulated worker outlives its process.
func (Simulated) Adopt(func(Spec), func(Spec, Exit)) ([]Adopted, error) { return nil, nil }

// Close implements Driver.
func (Simulated) Close() error { return nil }

type simulated struct {
	mu     sync.Mutex
	timers []*time.Timer
	ended  func(Exit)
	// signals has the request IDs of the signals that the worker got.
	signals requestIDs
}

// Stop implements Handle. The worker ends at once, as if by SIGTERM.
func (w *simulated) Stop(time.Duration, bool) error {
	w.end(exitOf(128+15, true))
	return nil
}

// Forget implements Handle.
func (w *simulated) Forget() {}

func (w *simulated) end(x Exit) {
	w.mu.Lock()
	ended := w.ended
	w.ended = nil
	for _, t := range w.timers {
		t.Stop()
	}
	w.mu.Unlock()
	if ended != nil {
		ended(x)
	}
}

func exitOf(code int32, stopped bool) Exit { return Exit{Code: &code, Stopped: stopped} }
