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
)

// Findings are about what a replica of a service leaves alone.
func (s Status) Findings(service string) []*berthv1.Finding {
	var list []*berthv1.Finding
	for _, a := range s.Aside {
		list = append(list, &berthv1.Finding{
			Kind: FindingPoison, Object: a.Object, Since: wire.Timestamp(a.Since),
			Message: a.Message, Action: a.Action, Service: service,
		})
	}
	return list
}
