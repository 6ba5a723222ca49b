package rest

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"berth.dev/api/fault"
)

// sameOrigin rejects requests that a web page of another origin makes a browser send. Such a
// page can post to any address that the browser reaches. If the page's own name resolves to
// that address (DNS rebinding), the page can also read the answer. So the Host of every call
// must be an address, localhost, one of the names or a name in the certificate, and a call that changes something must
// not come from a page of another origin. Probes may call the operation paths under any
// name.
func sameOrigin(names []string, serves func(host string) bool, calls http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(operationPaths, r.URL.Path) {
			calls.ServeHTTP(w, r)
			return
		}
		if host := hostname(r.Host); !known(host, names) && (serves == nil || !serves(host)) {
			rejectBrowser(w, "the Host %q is neither an address, localhost, a name in --public-names nor one in the certificate", host)
			return
		}
		if crossOrigin.Check(r) != nil {
			rejectBrowser(w, "a web page of another origin may not call this gateway (Origin %q, Sec-Fetch-Site %q)",
				r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"))
			return
		}
		calls.ServeHTTP(w, r)
	})
}

var crossOrigin = http.NewCrossOriginProtection()

// operationPaths are the paths for probes and collectors of metrics.
var operationPaths = []string{"/healthz", "/readyz", "/leaderz", "/metrics"}

func rejectBrowser(w http.ResponseWriter, format string, args ...any) {
	WriteStatus(w, http.StatusForbidden, fault.New(fault.Invalid, fault.ReasonNotAllowed, format, args...))
}

// hostname returns the Host of a request without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

func known(host string, names []string) bool {
	host = strings.TrimSuffix(host, ".")
	if zone := strings.IndexByte(host, '%'); zone >= 0 {
		host = host[:zone]
	}
	return net.ParseIP(host) != nil || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}
