// Package process is the common part of every Berth process: configuration, logs, metrics,
// listeners, signals and the shutdown order.
//
//	Command ──▶ Config ──▶ Run(ctx, Config)
//	                         NewLogger, NewMetrics        telemetry
//	                         Listen ×2                    bound before serving
//	                         Group: serve, watch, lead    first error stops all
//	                         Stop: step by step           bounded by a deadline
//
// It promises the same behavior of every process: flags override the environment, which
// overrides the file; unknown keys are errors; listeners beyond loopback need TLS or --insecure;
// every bound address is logged; SIGTERM causes an orderly shutdown.
package process
