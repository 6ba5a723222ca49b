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
// must be an address, localhost, one of the names or a name in the certificate, and a call
// that changes something must not come from a page of another origin. Probes may call the
// operation paths under any name. A browser may prove the identity of its operator, so the
// guard, which has identified the caller, records each rejection.
func sameOrigin(o Options, calls http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reject := func(format string, args ...any) {
			err := fault.New(fault.Denied, fault.ReasonPermissionDenied, format, args...)
			o.Guard.RecordRejected(r, err)
			WriteError(w, err)
		}
		if slices.Contains(operationPaths, r.URL.Path) {
			calls.ServeHTTP(w, r)
			return
		}
		if host := hostname(r.Host); !known(host, o.Names) && (o.Serves == nil || !o.Serves(host)) {
			reject("the Host %.100q is neither an address, localhost, a name in --public-names nor one in the certificate",
				host)
			return
		}
		if crossOrigin.Check(r) != nil {
			reject("a web page of another origin may not call this gateway (Origin %.100q, Sec-Fetch-Site %.100q)",
				r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"))
			return
		}
		calls.ServeHTTP(w, r)
	})
}

var crossOrigin = http.NewCrossOriginProtection()

// operationPaths are the paths for probes and collectors of metrics.
var operationPaths = []string{"/healthz", "/readyz", "/leaderz", "/metrics"}

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
