package rpc

import (
	"net"
	"strconv"
	"strings"
	"unicode"
)

// CheckAddress returns what is wrong with an address that a process dials, or "" if the
// address is host:port and may be reachable. It does not resolve the host.
func CheckAddress(address string) (problem string) {
	host, port, err := net.SplitHostPort(address)
	switch {
	case strings.Contains(address, "://"):
		return "must be host:port without a scheme"
	case err != nil:
		return "must be host:port"
	case host == "":
		return "must be host:port: the host is missing"
	case !possibleHost(host):
		return "must be host:port: this host cannot exist"
	}
	return checkPort(port, 1)
}

// CheckListenAddress returns what is wrong with an address at which a process listens, or "".
// The host may be empty, and the port may be 0, which lets the system choose one.
func CheckListenAddress(address string) (problem string) {
	host, port, err := net.SplitHostPort(address)
	switch {
	case strings.Contains(address, "://"):
		return "must be host:port without a scheme"
	case err != nil:
		return "must be host:port"
	case host != "" && !possibleHost(host):
		return "must be host:port: this host cannot exist"
	}
	return checkPort(port, 0)
}

// checkPort checks a port, which is a number or the name of a service, such as http.
func checkPort(port string, least int) (problem string) {
	n, err := strconv.Atoi(port)
	switch {
	case strings.Trim(port, "0123456789") == "":
	case strings.ContainsFunc(port, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }),
		port[0] == '-':
		n = -1
	default:
		n, err = net.LookupPort("tcp", port)
	}
	if err != nil || n < least || n > 65535 {
		return "must be host:port with a port between " + strconv.Itoa(least) + " and 65535"
	}
	return ""
}

// possibleHost reports whether a host is an address, or a name that could exist.
func possibleHost(host string) bool {
	address, _, _ := strings.Cut(host, "%") // the zone of an IPv6 address
	if net.ParseIP(address) != nil {
		return true
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	numbers := 0
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}) {
			return false
		}
		if strings.Trim(label, "0123456789") == "" {
			numbers++
		}
	}
	// Four numbers are an IPv4 address, and this one is not valid.
	return len(host) <= 254 && !(numbers == 4 && len(labels) == 4)
}
