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
	CutMember      Kind = "cut-member"       // both directions between a member and the other members
	CutMemberThere Kind = "cut-member-there" // the direction from a member to the other members
	CutMemberBack  Kind = "cut-member-back"  // the direction from the other members to a member
)

// parted reports whether a fault cuts a member of etcd off from the other members.
func (k Kind) parted() bool { return k == CutMember || k == CutMemberThere || k == CutMemberBack }

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
		// A proxy does not know which member dials, so it can cut only this direction.
		f.Kind, f.Condition = CutMemberThere, wiring.Condition{There: true}
	case n == 1:
		f.Kind, f.Condition = CutMemberBack, wiring.Condition{Back: true}
	default:
		f.Kind, f.Condition = CutMember, wiring.Condition{There: true, Back: true}
	}
	return f
}

// part cuts a member of etcd off from the other members and connects it again after the
// time of the fault.
func (i *injector) part(ctx context.Context, a *Applied) {
	p, err := i.claim(ctx, a.Target)
	if err != nil {
		a.Skipped = err.Error()
		return
	}
	defer i.release(p)
	a.Victim = p.Name
	if i.parted(p.Name, a.Condition) == 0 {
		a.Skipped = "there is no such link"
		return
	}
	<-time.After(a.For)
	i.parted(p.Name, wiring.Condition{})
}

// parted changes the condition of the links between a member of etcd and the other
// members, and returns their number. The directions of the condition are those of the
// member. The proxy of the member carries the connections that the other members dialled.
// A member sends on connections that the receiver dialled, so on these connections the
// direction Back carries what the member sends.
func (i *injector) parted(member string, c wiring.Condition) int {
	return i.links.Set(func(from, to string) bool {
		return from == member && to != member && strings.HasPrefix(to, "etcd-")
	}, c) + i.links.Set(func(from, to string) bool {
		return from == "peers" && to == member
	}, wiring.Condition{There: c.Back, Back: c.There})
}
