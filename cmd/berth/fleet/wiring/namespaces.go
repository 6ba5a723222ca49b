package wiring

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// Namespaces are hosts as far as the network goes: each process has one of its
// own, with an address, and a cable to the bridge that joins them all. So every
// packet can be cut, those of connections included that no proxy stands in: the
// members of etcd's among themselves, and a standby's to the leader's own address.
//
// What is sent to who is cut off vanishes at the receiver, in answer to nothing:
// the route back is a black hole. On a connection that there was, a packet or two of
// what is cut one way still arrive; then it waits for acknowledgements, either way.
type Namespaces struct {
	tag string // tells these from those of other runs

	mu    sync.Mutex
	hosts map[string]*host
	order []*host
	holes map[[2]*host]bool // where what one sends to the other vanishes
}

// host is one process's.
type host struct {
	name, namespace, cable, address string
}

// ErrNoNamespaces says that this machine lets us make no network namespaces.
var ErrNoNamespaces = errors.New("network namespaces cannot be made here, which takes root and the kernel's bridge and veth")

// NewNamespaces makes a bridge with nobody at it. The error wraps
// ErrNoNamespaces where that is not permitted.
func NewNamespaces(tag uint16) (*Namespaces, error) {
	n := &Namespaces{tag: fmt.Sprintf("%04x", tag), hosts: map[string]*host{}, holes: map[[2]*host]bool{}}
	err := errors.Join(
		ip("link", "add", n.bridge(), "type", "bridge"),
		ip("address", "add", n.Here()+"/24", "dev", n.bridge()),
		ip("link", "set", n.bridge(), "up"),
		ip("netns", "add", n.bridge()), // to see that it can be done
		ip("netns", "delete", n.bridge()),
	)
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	return n, nil
}

func (n *Namespaces) bridge() string { return "berth" + n.tag }

// subnet is the k-th address. Runs side by side rarely have the same tag, and one
// that has fails to make its bridge.
func (n *Namespaces) subnet(k int) string {
	var high, low int
	fmt.Sscanf(n.tag, "%02x%02x", &high, &low) //nolint:errcheck // NewNamespaces wrote four digits
	return fmt.Sprintf("10.%d.%d.%d", 64+high%64, low, k)
}

// Place gives a process its host. It is the Place of a fleet.
func (n *Namespaces) Place(name string) (fleet.Place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		k := len(n.order) + 2
		h = &host{
			name: name, namespace: fmt.Sprintf("%s-%d", n.bridge(), k), cable: fmt.Sprintf("b%s-%d", n.tag, k), address: n.subnet(k),
		}
		n.hosts[name], n.order = h, append(n.order, h)
		const inside = "eth0"
		err := errors.Join(
			ip("netns", "add", h.namespace),
			ip("link", "add", h.cable, "type", "veth", "peer", "name", inside, "netns", h.namespace),
			ip("link", "set", h.cable, "master", n.bridge(), "up"),
			ip("-n", h.namespace, "address", "add", h.address+"/24", "dev", inside),
			ip("-n", h.namespace, "link", "set", inside, "up"),
			ip("-n", h.namespace, "link", "set", "lo", "up"),
		)
		if err != nil {
			return fleet.Place{}, err
		}
	}
	return fleet.Place{Host: h.address, Command: []string{"ip", "netns", "exec", h.namespace}}, nil
}

// Here is the address of this very host, as the others reach it.
func (n *Namespaces) Here() string { return n.subnet(1) }

// Set puts the ways between hosts into a condition. Delay, loss and refusals are
// not to be had: this counts no links for them.
func (n *Namespaces) Set(chosen func(from, to string) bool, c Condition) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.Delay > 0 || c.Loss > 0 || c.Refused {
		return 0
	}
	set := 0
	for _, from := range n.order {
		for _, to := range n.order {
			if from == to || !chosen(from.name, to.name) && !(orders(from) && chosen("orders", to.name)) {
				continue
			}
			n.blackhole(to, from, c.There)
			n.blackhole(from, to, c.Back)
			set++
		}
	}
	return set
}

// orders says who sends orders to agents.
func orders(h *host) bool { return strings.HasPrefix(h.name, model.ServiceAssigner+"-") }

// blackhole has everything vanish, or not, that one host sends to another.
func (n *Namespaces) blackhole(at, to *host, vanish bool) {
	way := [2]*host{at, to}
	if n.holes[way] == vanish {
		return
	}
	verb := "delete"
	if vanish {
		verb = "add"
	}
	if ip("-n", at.namespace, "route", verb, "blackhole", to.address+"/32") == nil {
		n.holes[way] = vanish
	}
}

// Unplug takes a host off the network, or puts it back; false if there is none.
func (n *Namespaces) Unplug(name string, unplugged bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		return false
	}
	state := "up"
	if unplugged {
		state = "down"
	}
	return ip("link", "set", h.cable, state) == nil
}

// Close takes all of it away; nothing may run there any more.
func (n *Namespaces) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.order {
		// The kernel takes the cable away with the namespace, but some time later.
		_ = ip("link", "delete", h.cable)
		_ = ip("netns", "delete", h.namespace)
	}
	_ = ip("link", "delete", n.bridge())
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
