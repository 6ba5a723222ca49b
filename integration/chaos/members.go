package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
)

// The kinds of faults between the members of etcd. The services reach all of them
// meanwhile, the one that is cut off included: it answers, and cannot know anything.
const (
	CutMember      Kind = "cut-member"       // one is cut from all others, either way
	CutMemberThere Kind = "cut-member-there" // nothing of one gets to the others
	CutMemberBack  Kind = "cut-member-back"  // nothing of the others gets to it
)

// parted says whether a fault cuts a member of etcd from the others.
func (k Kind) parted() bool { return k == CutMember || k == CutMemberThere || k == CutMemberBack }

// memberFault cuts a member of etcd from the others, who leads more often than not:
// it goes on as leader until it notices, while the others elect one of themselves.
// The longest outlasts what members wait for one another, and what calls do.
func memberFault(r *rand.Rand, shape Shape) Fault {
	f := Fault{Target: "etcd/leader", For: between(r, 100*time.Millisecond, 12*time.Second)}
	if r.IntN(4) == 0 {
		f.Target = numbered(r, "etcd", shape.Members)
	}
	switch n := r.IntN(4); {
	case n == 0 || !shape.Hosts:
		// Through a proxy, which cannot tell who of the others dials, there is only this.
		f.Kind, f.Condition = CutMemberThere, wiring.Condition{There: true}
	case n == 1:
		f.Kind, f.Condition = CutMemberBack, wiring.Condition{Back: true}
	default:
		f.Kind, f.Condition = CutMember, wiring.Condition{There: true, Back: true}
	}
	return f
}

// part cuts a member of etcd from the others, and joins them again.
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

// parted puts the links between a member of etcd and the others into a condition,
// as it sees them, and answers how many there are. Those through a proxy are of the
// others to it, and what it sends is what comes back on them: members send on
// connections that the receiver dialled.
func (i *injector) parted(member string, c wiring.Condition) int {
	return i.links.Set(func(from, to string) bool {
		return from == member && to != member && strings.HasPrefix(to, "etcd-")
	}, c) + i.links.Set(func(from, to string) bool {
		return from == "peers" && to == member
	}, wiring.Condition{There: c.Back, Back: c.There})
}
