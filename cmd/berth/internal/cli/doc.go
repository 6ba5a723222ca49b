// Package cli is the command line of Berth: the commands that ask a gateway,
// and the frame that every other command of the binary hangs in.
//
// It promises scripts: results go to standard output and everything else to
// standard error; an error is one line that begins with `berth:`, perhaps with
// a hint below; the exit code says what kind of end it was (0 done, 1 failed,
// 2 bad usage, 3 not found, 4 unavailable).
//
//	main ── New ── apply, cancel, get, describe, explain, events, version
//	         │     disable, enable, drain, flush, mark-ready, resign, doctor
//	         │        └─ client ────── gateway      show: answers ▶ text
//	         └─ Run: errors ▶ one line and an exit code
package cli
