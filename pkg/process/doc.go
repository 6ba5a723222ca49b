// Package process gives every Berth process the same configuration, logs, metrics,
// listeners, signals and shutdown order.
//
//	Command ──▶ Config ──▶ Run(ctx, Config)
//	                         NewLogger, NewMetrics        telemetry
//	                         Listen ×2                    bound before serving
//	                         Group: serve, watch, lead    first error stops all
//	                         Stop: step by step           bounded by a deadline
//
// Every process behaves as follows: flags override the environment, which overrides the
// file; unknown keys are errors; listeners beyond loopback need TLS or --insecure; every
// bound address is logged; SIGTERM causes an orderly shutdown.
package process
