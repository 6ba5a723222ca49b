package show

import (
	"fmt"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// Caller describes a caller. The number of its methods is in place of their names.
func Caller(c *berthv1.Caller) string {
	var b strings.Builder
	if c.GetIdentity() == "" {
		field(&b, "Identity:", "none ("+NoIdentity(c)+")")
	} else {
		field(&b, "Identity:", c.GetIdentity())
	}
	role := c.GetRole()
	if c.GetTrusted() {
		role = "every role"
	}
	field(&b, "Role:", role)
	field(&b, "Name:", c.GetName())
	field(&b, "Methods:", fmt.Sprint(len(c.GetMethods())))
	field(&b, "Cluster:", c.GetCluster())
	field(&b, "Gateway:", c.GetGateway())
	field(&b, "Version:", c.GetVersion())
	return b.String()
}

// NoIdentity names a caller without an identity as the audit log does.
func NoIdentity(c *berthv1.Caller) string {
	if c.GetTrusted() {
		return "trusted"
	}
	return "nobody"
}

// AuditEntries returns the table of entries of an audit log. The error of a call is below its
// row. A wide table has it in columns.
func AuditEntries(list []*berthv1.AuditEntry, now time.Time, wide bool) *Table {
	t := table("TIME", "CALLER", "METHOD", "OBJECT", "OUTCOME").more(wide, "REASON", "PEER", "LISTENER", "REQUEST-ID",
		"REVISION", "SKIPPED", "MESSAGE")
	for _, e := range list {
		t.add(clock(e.GetTime().AsTime(), now), e.GetCaller(), e.GetMethod(), e.GetObject(), e.GetOutcome(), e.GetReason(),
			e.GetPeer(), e.GetListener(), e.GetRequestId(), number(e.GetRevision()), number(e.GetSkipped()), e.GetMessage())
		if !wide && e.GetMessage() != "" {
			t.note(e.GetMessage())
		}
	}
	return t
}
