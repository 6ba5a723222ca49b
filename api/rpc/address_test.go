package rpc_test

import (
	"strings"
	"testing"

	"berth.dev/api/rpc"
)

// An address that can never be dialed is refused, and no other one.
func TestCheckAddress(t *testing.T) {
	for _, address := range []string{
		"gateway-0:8080", "127.0.0.1:1", "10.0.0.7:65535", "[::1]:8080", "[fe80::1%eth0]:8080", "localhost:http",
		"berth-registry-0.berth-registry.prod.svc.cluster.local.:7101", "a_b:1", "0.0.0.0:1", "1:1", "7.example:1",
	} {
		if problem := rpc.CheckAddress(address); problem != "" {
			t.Errorf("%q %s", address, problem)
		}
		if problem := rpc.CheckListenAddress(address); problem != "" {
			t.Errorf("listening at %q %s", address, problem)
		}
	}
	for _, address := range []string{"127.0.0.1:0", ":8080", ":0"} {
		if problem := rpc.CheckListenAddress(address); problem != "" {
			t.Errorf("listening at %q %s", address, problem)
		}
		if rpc.CheckAddress(address) == "" {
			t.Errorf("%q is accepted", address)
		}
	}
	for _, address := range []string{
		"", "a", "a:", "a:65536", "a:-1", "a:+1", "a:99999999999999999999", "a:no-such-service", "a: 1", " a:1", "a :1",
		"a:1 ", "http://a:1", "a:1/x", "a/b:1", "::1:8080", "[::1]", "a..b:1", ".a:1", "256.1.1.1:80", "u@a:1", "a,b:1",
		"a:1,b:1", "[a:1", `"a":1`, "*:80", strings.Repeat("a", 64) + ":1",
	} {
		if rpc.CheckAddress(address) == "" {
			t.Errorf("%q is accepted", address)
		}
		if rpc.CheckListenAddress(address) == "" {
			t.Errorf("listening at %q is accepted", address)
		}
	}
}
