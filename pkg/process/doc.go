// Package process is the shell of every Berth process: configuration, logs,
// metrics, listeners, signals and the order in which things stop.
//
//	Command ──▶ Config ──▶ Run(ctx, Config)
//	                         NewLogger, NewMetrics        telemetry
//	                         Listen ×2                    bound before serving
//	                         Group: serve, watch, lead    first error stops all
//	                         Stop: step by step           bounded by a deadline
//
// It promises the same behaviour of all of them: flags before environment
// before file, unknown keys refused, nothing but loopback without TLS unless
// it was asked for, every bound address told, and an orderly end on SIGTERM.
package process
