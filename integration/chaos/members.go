package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
)

// The kinds of faults between the members of etcd. During such a fault, the services
// still reach all members. The member that is cut off answers, but its data is stale.
const (
	CutMember        Kind = "cut-member"         // a member and the others, in both directions
	CutMemberSend    Kind = "cut-member-send"    // from a member to the others
	CutMemberReceive Kind = "cut-member-receive" // from the others to a member
)

// partitioned reports whether a fault cuts a member of etcd from the others.
func (k Kind) partitioned() bool {
	return k == CutMember || k == CutMemberSend || k == CutMemberReceive
}

// memberFault returns a fault that cuts a member of etcd off from the other members. The
// member is usually the leader. It continues as leader until it detects the fault, while
// the other members elect a new leader. The longest fault is longer than the timeouts of
// members and of calls.
func memberFault(r *rand.Rand, shape Shape) Fault {
	f := Fault{Target: "etcd/leader", For: between(r, 100*time.Millisecond, 12*time.Second)}
	if r.IntN(4) == 0 {
		f.Target = numbered(r, "etcd", shape.Members)
	}
	switch n := r.IntN(4); {
	case n == 0 || !shape.Hosts:
		// A proxy does not know which member dials, so only this direction is
		// possible.
		f.Kind, f.Condition = CutMemberSend, wiring.Condition{There: true}
	case n == 1:
		f.Kind, f.Condition = CutMemberReceive, wiring.Condition{Back: true}
	default:
		f.Kind, f.Condition = CutMember, wiring.Condition{There: true, Back: true}
	}
	return f
}

// partition cuts a member of etcd from the others and connects it again.
func (i *injector) partition(ctx context.Context, a *Applied) {
	p, err := i.claim(ctx, a.Target)
	if err != nil {
		a.Skipped = err.Error()
		return
	}
	defer i.release(p)
	a.Victim = p.Name
	if i.setMemberLinks(p.Name, a.Condition) == 0 {
		a.Skipped = "unknown link"
		return
	}
	<-time.After(a.For)
	i.setMemberLinks(p.Name, wiring.Condition{})
}

// setMemberLinks changes the condition of the links between a member of etcd and the others, from
// the member's point of view, and returns their number. Connections through a proxy are
// those that the others dialled. Members send on connections that the receiver dialled, so
// that what the member sends is Back on them.
func (i *injector) setMemberLinks(member string, c wiring.Condition) int {
	return i.links.Set(func(from, to string) bool {
		return from == member && to != member && strings.HasPrefix(to, "etcd-")
	}, c) + i.links.Set(func(from, to string) bool {
		return from == "peers" && to == member
	}, wiring.Condition{There: c.Back, Back: c.There})
}
