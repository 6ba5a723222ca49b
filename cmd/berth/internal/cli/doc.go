// Package cli writes the results of a command to standard output and everything else to
// standard error, and returns an exit code by which scripts can tell errors apart. It is
// the command line of Berth: the commands that call a gateway, and the root of all other
// commands.
//
// An error is one line that begins with `berth:`. A hint may follow on the next line. The
// exit code is 0 for success, 1 for a failure, 2 for invalid usage, 3 for not found, and 4
// for unavailable.
//
//	main ── New ── apply, cancel, get, describe, explain, events, logs, wait, top, version
//	         │     disable, enable, drain, hold-scaling, flush, mark-ready, resign, doctor
//	         │     config (contexts), inspect (etcd)
//	         │        └─ client ────── gateway      show: answers ▶ text
//	         └─ Run: errors ▶ one line and an exit code
package cli
