package fleet

import (
	"net"
	"slices"
	"strconv"

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

// process returns a process with its arguments, at its place. Each flag sets another address
// on which the process listens.
func (f *Fleet) process(name string, args []string, flags ...string) (*child.Process, error) {
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
		if args[0] != "etcd" { // the etcd command has no TLS and no --insecure
			args = append(args, "--insecure")
		}
	}
	command := slices.Concat(place.Command, []string{f.config.Program(name)}, args)
	p := child.New(name, command[0], f.config.Dir, nil, command[1:]...)
	f.flags[p] = flags
	return p, nil
}
