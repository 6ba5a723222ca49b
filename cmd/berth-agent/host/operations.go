package host

import (
	"net"

	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// Operate serves the health and the metrics of an agent of the host on a listener, and Go's
// profiles if pprof is set. Close closes the listener.
func (h *Host) Operate(listener net.Listener, a *agent.Agent, pprof bool) error {
	metrics, err := process.NewMetrics(func() string { return h.cluster(a) })
	if err != nil {
		return err
	}
	metrics.Collect(h.secured.Metrics)
	metrics.Collect(func(f process.Scrape) { showMetrics(f, a.Stats(), a.Ready()) })
	h.operations = h.secured.Operations(process.Profiled(pprof, process.OpsHandler(nil, a.Ready, nil, metrics)))
	h.group.Go("health and metrics", process.ServeHTTP(h.operations,
		h.secured.Listener(listener, "--http-listen", true)))
	return nil
}

// cluster returns the name of the cluster of an agent: the one in its certificate, or
// without a certificate the one that registered it.
func (h *Host) cluster(a *agent.Agent) string {
	if id := h.secured.Identity(); id != nil {
		return id.Cluster
	}
	return a.Stats().Cluster
}

// showMetrics emits the metrics of an agent.
func showMetrics(f process.Scrape, s agent.Stats, notReady error) {
	const prefix = "berth_agent_"
	ready := 1.0
	if notReady != nil {
		ready = 0
	}
	f.Gauge(prefix+"ready", "1 if the executor is registered and its heartbeats are answered, otherwise 0.", ready)
	for _, state := range []model.WorkerState{model.WorkerStarting, model.WorkerRunning, model.WorkerEvicting,
		model.WorkerCompleted, model.WorkerFailed, model.WorkerEvicted} {
		f.Gauge(prefix+"workers", "Workers by state; an ended worker counts until its end is acknowledged.",
			float64(s.Workers[state]), "state", state.String())
		if state.Terminal() {
			f.Counter(prefix+"workers_ended_total", "Ended workers by their last state.", s.Ended[state], "state",
				state.String())
		}
	}
	f.Counter(prefix+"starts_total", "Started workers.", s.Starts)
	f.Counter(prefix+"start_failures_total", "Starts that failed.", s.FailedStarts)
	f.Counter(prefix+"registrations_total", "Successful registrations.", s.Registrations)
	f.Counter(prefix+"heartbeat_streams_total", "Heartbeat streams that the control plane answered.", s.Streams)
	if s.SinceAnswer >= 0 {
		f.Gauge(prefix+"heartbeat_age_seconds", "Time since the last answer to a heartbeat.", s.SinceAnswer.Seconds())
	}
	f.Gauge(prefix+"ended_bytes", "Disk space of the kept directories of ended workers.", float64(s.EndedBytes))
	if s.FreeBytes >= 0 {
		f.Gauge(prefix+"free_bytes", "Free space of the file system of the agent's directory.", float64(s.FreeBytes))
	}
}
