package cli

import (
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"berth.dev/api/rpc"
)

// proxyVariable is the variable with the proxy of connections with TLS.
const proxyVariable = "HTTPS_PROXY"

// proxyOf returns the function that returns the proxy for the address of a server with TLS, as other
// programs choose it: HTTPS_PROXY, unless NO_PROXY has the host or the host is this one. Both may be
// in lower case.
func proxyOf(env func(string) string) func(address string) rpc.Proxy {
	either := func(name string) (value, found string) {
		for _, found := range []string{name, strings.ToLower(name)} {
			if value := env(found); value != "" {
				return value, found
			}
		}
		return "", name
	}
	proxy, source := either(proxyVariable)
	except, _ := either("NO_PROXY")
	of := (&httpproxy.Config{HTTPSProxy: proxy, NoProxy: except}).ProxyFunc()
	return func(address string) rpc.Proxy {
		found, _ := of(&url.URL{Scheme: "https", Host: address}) // this fails only for http
		return rpc.Proxy{URL: found, Source: source}
	}
}
