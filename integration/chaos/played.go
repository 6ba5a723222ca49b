package chaos

import (
	"fmt"
	"os"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
)

// part is a part of chaos that runs only if a flag requests it and the machine permits it.
// A part that was left out is reported, because nothing else shows it.
type part struct {
	name, flag string
	// without are the faults that are left out with it.
	without string
	// permitted tries the part and returns why it is not permitted.
	permitted               func() error
	requestedParts, refused bool
}

// parts are all parts, in the order in which they are reported.
type parts struct{ namespaces, clock part }

func newParts(namespaces, clock bool) *parts {
	return &parts{
		namespaces: part{
			name: "namespaces", flag: "-namespaces", without: "cable cuts and blackhole routes",
			permitted: namespacesPermitted, requestedParts: namespaces,
		},
		clock: part{
			name: "clock", flag: "CHAOS_CLOCK=1, -clock", without: "steps of the clock",
			permitted: clockPermitted, requestedParts: clock,
		},
	}
}

// try finds out what is permitted. It does not try parts that no flag requests, because a
// trial changes the machine.
func (p *parts) try() {
	for _, part := range []*part{&p.namespaces, &p.clock} {
		part.refused = part.requestedParts && part.permitted() != nil
	}
}

func (p part) played() bool { return p.requestedParts && !p.refused }

// share returns the duration of each run: half of the whole if there are two.
func (p *parts) share(whole time.Duration) time.Duration {
	if p.namespaces.played() {
		return whole / 2
	}
	return whole
}

// left returns a line for each part that does not run.
func (p *parts) left() []string {
	var lines []string
	for _, part := range []part{p.namespaces, p.clock} {
		switch {
		case part.refused:
			lines = append(lines, fmt.Sprintf("%s: not permitted on this machine: no %s", part.name, part.without))
		case !part.requestedParts:
			lines = append(lines, fmt.Sprintf("%s: not requested (%s): no %s", part.name, part.flag, part.without))
		}
	}
	return lines
}

// namespacesPermitted creates a bridge and deletes it.
func namespacesPermitted() error {
	hosts, err := wiring.NewNamespaces(uint16(os.Getpid()))
	if err == nil {
		hosts.Close()
	}
	return err
}
