package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"time"

	"berth.dev/api/rpc"
)

// expiresSoon is the remaining lifetime below which the check of a certificate is a
// warning. A manual renewal may take that long.
const expiresSoon = 14 * 24 * time.Hour

// certificates returns one check for each bad certificate, and one check for all good
// certificates together.
func certificates(f Facts) []Check {
	if !f.TLS {
		return []Check{{Name: "certificates", Verdict: Skipped, Seen: "not checked",
			Do: "if the cluster uses TLS, set --tls-ca, and --tls-cert and --tls-key of a viewer or operator"}}
	}
	var checks []Check
	rest := 0
	var first Certificate
	for _, c := range slices.SortedFunc(slices.Values(f.Certificates),
		func(a, b Certificate) int { return cmp.Compare(a.Of, b.Of) }) {
		left := c.NotAfter.Sub(f.Clock)
		const do = "renew it; Berth and etcd use the new file without a restart"
		switch {
		case c.Error != "":
			checks = append(checks, warn("certificates", "check that the process runs and serves with TLS", "%s: %s", c.Of,
				c.Error))
		case left <= 0:
			checks = append(checks, fail("certificates", do, "%s: expired at %s", c.Of, c.NotAfter.UTC().Format(time.RFC3339)))
		case f.Clock.Before(c.NotBefore):
			checks = append(checks, fail("certificates", do+"; if it is new, correct the clocks", "%s: is not valid before %s",
				c.Of, c.NotBefore.UTC().Format(time.RFC3339)))
		case left < expiresSoon:
			checks = append(checks, warn("certificates", do, "%s: expires at %s", c.Of, c.NotAfter.UTC().Format(time.RFC3339)))
		default:
			rest++
			if first.Of == "" || c.NotAfter.Before(first.NotAfter) {
				first = c
			}
		}
	}
	if rest > 0 {
		checks = append(checks, ok("certificates", "%s; the first expires at %s (%s)", plural(rest, "certificate"),
			first.NotAfter.UTC().Format(time.RFC3339), first.Of))
	}
	return checks
}

// presented returns the certificate that the server at an address presents. It does not
// verify the certificate, because the check must report certificates that are not valid now.
func presented(ctx context.Context, address string, with *tls.Config, proxy proxyOf) Certificate {
	c := Certificate{Of: address}
	unverified := with.Clone()
	unverified.InsecureSkipVerify, unverified.VerifyConnection = true, nil
	unverified.NextProtos = []string{"h2"} // gRPC requires it
	var through rpc.Proxy
	if proxy != nil {
		through = proxy(address)
	}
	conn, err := through.Dial(ctx, address)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	defer conn.Close()
	if unverified.ServerName == "" {
		unverified.ServerName, _, _ = net.SplitHostPort(address) // the address was dialed, so it is valid
	}
	encrypted := tls.Client(conn, unverified)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		c.Error = err.Error()
		return c
	}
	leaf := encrypted.ConnectionState().PeerCertificates[0]
	c.NotBefore, c.NotAfter = leaf.NotBefore, leaf.NotAfter
	return c
}

// own returns the client certificate of this command, or false if it has none.
func own(file string, with *tls.Config) (Certificate, bool) {
	if len(with.Certificates) == 0 {
		return Certificate{}, false
	}
	leaf, err := x509.ParseCertificate(with.Certificates[0].Certificate[0])
	if err != nil {
		return Certificate{Of: file, Error: err.Error()}, true
	}
	return Certificate{Of: file, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}, true
}
