package chaos

import (
	"fmt"
	"os"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
)

// part is what is played only where somebody asked for it and the machine permits
// it. A part that was left out has to be told of, since nothing else shows it.
type part struct {
	name, flag string
	// without says what is left out with it.
	without string
	// permitted says why it cannot be played here, by trying.
	permitted      func() error
	asked, refused bool
}

// parts are all there are, in the order in which they are told of.
type parts struct{ namespaces, clock part }

func newParts(namespaces, clock bool) *parts {
	return &parts{
		namespaces: part{
			name: "namespaces", flag: "-namespaces", without: "cable cuts and blackhole routes",
			permitted: namespacesPermitted, asked: namespaces,
		},
		clock: part{
			name: "clock", flag: "CHAOS_CLOCK=1, -clock", without: "steps of the time of day",
			permitted: clockPermitted, asked: clock,
		},
	}
}

// try finds out what is permitted. It is not for a part that nobody asked for: to
// try is to do it, if only for nothing.
func (p *parts) try() {
	for _, part := range []*part{&p.namespaces, &p.clock} {
		part.refused = part.asked && part.permitted() != nil
	}
}

func (p part) played() bool { return p.asked && !p.refused }

// share is how long each run lasts of the time that there is: half of it, where
// there are two.
func (p *parts) share(whole time.Duration) time.Duration {
	if p.namespaces.played() {
		return whole / 2
	}
	return whole
}

// left is a line for each part that is not played.
func (p *parts) left() []string {
	var lines []string
	for _, part := range []part{p.namespaces, p.clock} {
		switch {
		case part.refused:
			lines = append(lines, fmt.Sprintf("%s: not permitted here: %s were not played", part.name, part.without))
		case !part.asked:
			lines = append(lines, fmt.Sprintf("%s: not asked for (%s): %s were not played", part.name, part.flag, part.without))
		}
	}
	return lines
}

// namespacesPermitted makes a bridge and takes it away again.
func namespacesPermitted() error {
	hosts, err := wiring.NewNamespaces(uint16(os.Getpid()))
	if err == nil {
		hosts.Close()
	}
	return err
}
