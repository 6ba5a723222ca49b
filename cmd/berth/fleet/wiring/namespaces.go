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

// Namespaces gives each process a network namespace with its own address and a veth pair to
// a common bridge. Every link can be cut, including the links that have no proxy: the links
// between members of etcd, and the link from a standby to the leader's own address.
//
// To cut a direction, Namespaces adds a blackhole route at the receiver. The receiver then
// drops the packets that it would send back, including acknowledgements. On an existing
// connection, one or two packets of the cut direction still arrive before the sender waits
// for acknowledgements.
type Namespaces struct {
	tag uint16 // distinguishes concurrent runs

	mu    sync.Mutex
	hosts map[string]*host
	order []*host
	holes map[[2]*host]bool // from and to of blackhole routes
}

// host is the namespace of one process.
type host struct {
	name, namespace, cable, address string
}

// ErrNoNamespaces means that this process cannot create network namespaces.
var ErrNoNamespaces = errors.New("cannot create network namespaces: run as root on a kernel with bridge and veth")

// NewNamespaces creates the bridge. The error wraps ErrNoNamespaces if this process may not
// create a bridge or a network namespace.
func NewNamespaces(tag uint16) (*Namespaces, error) {
	n := &Namespaces{tag: tag, hosts: map[string]*host{}, holes: map[[2]*host]bool{}}
	err := errors.Join(
		ip("link", "add", n.bridge(), "type", "bridge"),
		ip("address", "add", n.Here()+"/24", "dev", n.bridge()),
		ip("link", "set", n.bridge(), "up"),
		ip("netns", "add", n.bridge()), // checks the permission
		ip("netns", "delete", n.bridge()),
	)
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	return n, nil
}

func (n *Namespaces) bridge() string { return fmt.Sprintf("berth%04x", n.tag) }

// subnet returns the k-th address of the network. If two concurrent runs have the same tag,
// the second run fails to create its bridge.
func (n *Namespaces) subnet(k int) string {
	return fmt.Sprintf("10.%d.%d.%d", 64+(n.tag>>8)%64, n.tag&0xff, k)
}

// Place returns the place of a process and creates the network namespace if necessary. Use
// it as the Place of a fleet's configuration.
func (n *Namespaces) Place(name string) (fleet.Place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		k := len(n.order) + 2
		h = &host{
			name: name, namespace: fmt.Sprintf("%s-%d", n.bridge(), k), cable: fmt.Sprintf("b%04x-%d", n.tag, k),
			address: n.subnet(k),
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

// Here returns the address of this machine on the bridge.
func (n *Namespaces) Here() string { return n.subnet(1) }

// Set changes the condition of the chosen links and returns their number. If the condition
// has a delay, loss or refusals, which Set does not support, Set returns 0 and changes
// nothing.
func (n *Namespaces) Set(chosen func(from, to string) bool, c Condition) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.Delay > 0 || c.Loss > 0 || c.Refused {
		return 0
	}
	set := 0
	for _, from := range n.order {
		for _, to := range n.order {
			sendsOrders := strings.HasPrefix(from.name, model.ServiceAssigner+"-")
			if from == to || !chosen(from.name, to.name) && !(sendsOrders && chosen("orders", to.name)) {
				continue
			}
			n.blackhole(to, from, c.There)
			n.blackhole(from, to, c.Back)
			set++
		}
	}
	return set
}

// blackhole adds or deletes a route at a host that drops everything that the host sends to
// another host.
func (n *Namespaces) blackhole(at, to *host, drop bool) {
	hole := [2]*host{at, to}
	if n.holes[hole] == drop {
		return
	}
	verb := "delete"
	if drop {
		verb = "add"
	}
	if ip("-n", at.namespace, "route", verb, "blackhole", to.address+"/32") == nil {
		n.holes[hole] = drop
	}
}

// Unplug disconnects a host from the network or connects it again. It returns false if
// there is no such host or the change fails.
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

// Close deletes the namespaces and the bridge. It must be called after all processes in the
// namespaces have exited.
func (n *Namespaces) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.order {
		// The kernel deletes the veth pair with the namespace, but only some time later.
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
