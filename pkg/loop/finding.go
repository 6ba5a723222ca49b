package loop

import (
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/wire"
)

// The kinds of findings.
const (
	// FindingPoison: a record cannot be read, or something made the service's core
	// panic; it is left alone.
	FindingPoison = "POISON"
	// FindingPeerPanic: what a peer sent made the goroutine that handled it panic.
	FindingPeerPanic = "PEER_PANIC"
)

// Findings are about what a replica of a service leaves alone, and about peers whose
// messages made it panic.
func (s Status) Findings(service string) []*berthv1.Finding {
	var list []*berthv1.Finding
	for _, a := range s.Aside {
		list = append(list, &berthv1.Finding{
			Kind: FindingPoison, Object: a.Object, Since: wire.Timestamp(a.Since),
			Message: a.Message, Action: a.Action, Service: service,
		})
	}
	for _, p := range s.Panics {
		list = append(list, &berthv1.Finding{
			Kind: FindingPeerPanic, Object: p.Peer, Since: wire.Timestamp(p.Since), Message: p.Message, Service: service,
			Action: "What it sent was dropped, and everything else is served. Report the stack in the log as a defect of Berth, and look at the peer.",
		})
	}
	return list
}
