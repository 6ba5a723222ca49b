package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// runsOutSoon is how early a certificate is warned of: a fortnight, which is what
// a renewal by hand may take.
const runsOutSoon = 14 * 24 * time.Hour

// certificates is one check for each that fails, and one for the rest.
func certificates(f Facts) []Check {
	if !f.TLS {
		return []Check{{Name: "certificates", Verdict: Skipped, Seen: "not looked at", Do: "where TLS is used: --tls-cert, --tls-key and --tls-ca, as the services have them"}}
	}
	var checks []Check
	rest := 0
	var first Certificate
	for _, c := range slices.SortedFunc(slices.Values(f.Certificates), func(a, b Certificate) int { return cmp.Compare(a.Of, b.Of) }) {
		left := c.NotAfter.Sub(f.Clock)
		const do = "renew it, and restart who serves with it"
		switch {
		case c.Error != "":
			checks = append(checks, warn("certificates", "see that it runs, and serves with TLS", "%s: %s", c.Of, c.Error))
		case left <= 0:
			checks = append(checks, fail("certificates", do, "%s: ran out at %s", c.Of, c.NotAfter.UTC().Format(time.RFC3339)))
		case left < runsOutSoon:
			checks = append(checks, warn("certificates", do, "%s: runs out at %s", c.Of, c.NotAfter.UTC().Format(time.RFC3339)))
		default:
			rest++
			if first.Of == "" || c.NotAfter.Before(first.NotAfter) {
				first = c
			}
		}
	}
	if rest > 0 {
		checks = append(checks, ok("certificates", "%s, the first of which runs out at %s (%s)", plural(rest, "certificate"), first.NotAfter.UTC().Format(time.RFC3339), first.Of))
	}
	return checks
}

// presented is the certificate that an address serves with. It is read and not
// trusted: one that has run out is what is looked for.
func presented(ctx context.Context, address string, with *tls.Config) Certificate {
	c := Certificate{Of: address}
	unverified := with.Clone()
	unverified.InsecureSkipVerify = true
	unverified.NextProtos = []string{"h2"} // what gRPC insists on
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: unverified}).DialContext(ctx, "tcp", address)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	defer conn.Close()
	c.NotAfter = conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
	return c
}

// own is the certificate that this command calls with.
func own(file string, with *tls.Config) (Certificate, bool) {
	if len(with.Certificates) == 0 {
		return Certificate{}, false
	}
	leaf, err := x509.ParseCertificate(with.Certificates[0].Certificate[0])
	if err != nil {
		return Certificate{Of: file, Error: err.Error()}, true
	}
	return Certificate{Of: file, NotAfter: leaf.NotAfter}, true
}
