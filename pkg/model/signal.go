package model

import (
	"slices"
	"strings"
)

// Signal is the name of a signal, such as "SIGUSR1". The numbers of signals depend on the
// host, so only the agent converts the name.
type Signal string

// The signals with a meaning of their own.
const (
	SIGKILL Signal = "SIGKILL"
	SIGSTOP Signal = "SIGSTOP"
	SIGTERM Signal = "SIGTERM"
)

// signals has the names of the standard signals of Linux, without SIG.
var signals = []string{"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "KILL", "PIPE", "PROF",
	"PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2",
	"VTALRM", "WINCH", "XCPU", "XFSZ"}

// ParseSignal returns the signal with a name, with or without SIG and in any case. It accepts
// only standard signals of Linux.
func ParseSignal(name string) (signal Signal, ok bool) {
	short := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if !slices.Contains(signals, short) {
		return "", false
	}
	return Signal("SIG" + short), true
}

// SignalNames returns the names of the signals that ParseSignal accepts, without SIG, in order.
func SignalNames() []string { return slices.Clone(signals) }

// Stops reports whether the signal may ask a process to stop: the process can handle it.
func (s Signal) Stops() bool { return s != SIGKILL && s != SIGSTOP }
