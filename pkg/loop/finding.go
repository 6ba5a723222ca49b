package loop

import (
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/wire"
)

// The kinds of findings.
const (
	// FindingPoison: a record or a request is quarantined, because the record cannot be
	// decoded or because it made the service's core panic.
	FindingPoison = "POISON"
	// FindingPeerPanic: the function that handles messages of a peer panicked.
	FindingPeerPanic = "PEER_PANIC"
)

// Findings returns the findings about quarantined records and requests, and about peers
// whose messages caused a panic.
func (s Status) Findings(service string) []*berthv1.Finding {
	var list []*berthv1.Finding
	for _, q := range s.Quarantined {
		list = append(list, &berthv1.Finding{
			Kind: FindingPoison, Object: q.Object, Since: wire.Timestamp(q.Since),
			Message: q.Message, Action: q.Action, Service: service,
		})
	}
	for _, p := range s.Panics {
		list = append(list, &berthv1.Finding{
			Kind: FindingPeerPanic, Object: p.Peer, Since: wire.Timestamp(p.Since), Message: p.Message, Service: service,
			Action: "The message was dropped, and everything else is served. Report the stack in the log as a defect of Berth, and examine the peer.",
		})
	}
	return list
}
