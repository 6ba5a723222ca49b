package fleet

import (
	"context"
	"net"
	"slices"
	"strconv"

	"berth.dev/pkg/identity"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/process/port"
)

// firstPort is the first port of a process that has its own host address.
const firstPort = 7100

// address returns the n-th listen address of a process. The address is reserved, so other
// processes may get it before the process runs.
func (f *Fleet) address(name string, n int) (string, error) {
	place, err := f.config.Place(name)
	if err != nil {
		return "", err
	}
	if place.Host != "" {
		return net.JoinHostPort(place.Host, strconv.Itoa(firstPort+n)), nil
	}
	held, err := port.Hold("127.0.0.1")
	if err != nil {
		return "", err
	}
	f.ports = append(f.ports, held)
	return held.Address(), nil
}

// program is what a process runs.
type program struct {
	// args has the arguments without the flags of security.
	args []string
	// listen has the flags whose values are addresses that the process listens on.
	listen []string
	// id is the identity in the certificate; the zero value for a member of etcd.
	id   identity.Identity
	host string // "" for loopback
}

// process returns a process with its arguments and its identity, at its place. Each flag sets
// another address on which the process listens.
func (f *Fleet) process(name string, id identity.Identity, args []string, flags ...string) (*child.Process, error) {
	place, err := f.config.Place(name)
	if err != nil {
		return nil, err
	}
	if place.Host != "" {
		for n, flag := range flags {
			address, err := f.address(name, n+1) // args may already contain address 0
			if err != nil {
				return nil, err
			}
			args = append(args, flag, address)
		}
		flags = nil
	}
	command := slices.Concat(place.Command, []string{f.config.Program(name)}, args, f.config.Flags[name])
	p := child.New(name, command[0], f.config.Dir, nil)
	f.programs[p] = program{command[1:], flags, id, place.Host}
	return p, nil
}

// Restart starts a process that has exited, at the same address.
func (f *Fleet) Restart(ctx context.Context, p *child.Process) error {
	run := f.programs[p]
	args := run.args
	if run.id.Role != identity.Nobody {
		secured, err := f.security.flags(run.id, run.host)
		if err != nil {
			return err
		}
		args = slices.Concat(args, secured)
	}
	p.SetArgs(args...)
	return p.Start(ctx, run.listen...)
}
