package cli

import (
	"net"
	"strings"
	"testing"

	"berth.dev/api/rpc"
	"berth.dev/testkit/porttest"
)

// Calls with TLS go through the proxy of HTTPS_PROXY, except to the hosts of NO_PROXY and to this
// host. If nobody listens there, the errors name the proxy.
func TestProxyOfTheEnvironment(t *testing.T) {
	s := newSecured(t)
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	nobody := porttest.Hold(t)
	// An address that reaches this host, and that does not count as this host.
	beyond, here := "https://"+net.JoinHostPort("0.0.0.0", port), "https://"+s.address
	proxy, through := "http://me:s3cret@"+nobody, "through the proxy http://"+nobody+" of "
	for name, c := range map[string]struct {
		env     map[string]string
		gateway string
		says    string // of the proxy, or nothing if the call succeeds
	}{
		"proxy":      {map[string]string{"HTTPS_PROXY": proxy}, beyond, through + "HTTPS_PROXY: connection refused"},
		"lower case": {map[string]string{"https_proxy": proxy}, beyond, through + "https_proxy: connection refused"},
		"other host": {map[string]string{"HTTPS_PROXY": proxy, "NO_PROXY": "example.com"}, beyond,
			through + "HTTPS_PROXY"},
		"exempt":             {map[string]string{"HTTPS_PROXY": proxy, "NO_PROXY": "example.com,0.0.0.0"}, beyond, ""},
		"exempt, lower case": {map[string]string{"HTTPS_PROXY": proxy, "no_proxy": "*"}, beyond, ""},
		"this host":          {map[string]string{"HTTPS_PROXY": proxy}, here, ""},
		"other proxies":      {map[string]string{"HTTP_PROXY": proxy, "ALL_PROXY": proxy}, beyond, ""},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--gateway", c.gateway, "--tls-ca", s.ca, "--token-file", s.token, "--timeout"}
			if c.says == "" {
				if code, out, stderr := runWith(t, c.env, append([]string{"get", "leaders"}, append(args, "1m")...)...); code !=
					rpc.ExitDone {
					t.Errorf("exit %d: %s%s", code, out, stderr)
				}
				return
			}
			code, _, stderr := runWith(t, c.env, append([]string{"get", "leaders"}, append(args, "2s")...)...)
			if code != rpc.ExitUnavailable || strings.Count(stderr, c.says) < 2 ||
				!strings.Contains(stderr, "hint: set NO_PROXY") || strings.Contains(stderr, "s3cret") {
				t.Errorf("exit %d: %s, want %q", code, stderr, c.says)
			}
			_, out, _ := runWith(t, c.env, append([]string{"doctor"}, append(args, "200ms")...)...)
			if !strings.Contains(out, "through the proxy http://"+nobody) || strings.Contains(out, "s3cret") {
				t.Errorf("doctor: %s", out)
			}
		})
	}
}
