package cli

import (
	"fmt"
	"strings"

	"berth.dev/pkg/identity"
)

// The errors of the client about certificates. The reason follows.
const (
	// refusedCertificate is the error of a gateway that refuses the certificate of this command.
	refusedCertificate = "the gateway refused the certificate of the client: "
	// failedHandshake is the error of this command about the certificate of a gateway.
	failedHandshake = "the TLS handshake with the gateway failed: "
)

// withTLSHint adds a hint to an error about a certificate: the option and the file that are wrong, and what
// to do.
func (f gatewayFlags) withTLSHint(err error) error {
	hint, text := "", sentence(err)
	if _, why, refused := strings.Cut(text, refusedCertificate); refused {
		hint = f.hintOnOwn(why)
	} else if _, why, failed := strings.Cut(text, failedHandshake); failed {
		hint = f.hintOnGateway(why)
	}
	if hint == "" {
		return err
	}
	return hinted{err, hint}
}

// hintOnOwn returns the hint about the certificate of this command, which a gateway refused.
func (f gatewayFlags) hintOnOwn(why string) string {
	security, err := f.security()
	if err != nil || security == nil || len(security.Certificates) == 0 {
		return "set --tls-cert and --tls-key to a certificate for this cluster"
	}
	leaf, file := security.Certificates[0].Leaf, "the certificate in "+f.tlsCert+" (--tls-cert)"
	id, err := identity.Of(leaf)
	switch {
	case strings.HasPrefix(why, "expired"):
		return fmt.Sprintf("%s is valid from %v to %v: replace it, or correct the clock of this host or of the gateway's", file,
			leaf.NotBefore.UTC(), leaf.NotAfter.UTC())
	case strings.HasPrefix(why, "unknown certificate authority"):
		return fmt.Sprintf("%s was signed by %q, which is not in the gateway's --tls-ca: use a certificate that an authority of "+
			"this cluster has signed", file, leaf.Issuer)
	case err != nil:
		return fmt.Sprintf("%s proves no role: %v; use a certificate such as 'berth certs issue' writes", file, err)
	}
	return fmt.Sprintf("%s has the identity %v: use the certificate of a client of the gateway's cluster; the log of the gateway "+
		"has the reason", file, id)
}

// hintOnGateway returns the hint about the certificate of a gateway, which this command does not accept.
func (f gatewayFlags) hintOnGateway(why string) string {
	switch {
	case strings.Contains(why, "unknown authority") && f.tlsCA == "":
		return "no authority of this host has signed the certificate of the gateway: set --tls-ca to the file (PEM) of the " +
			"gateway's authorities"
	case strings.Contains(why, "unknown authority"):
		return "no authority in " + f.tlsCA + " (--tls-ca) has signed the certificate of the gateway: use the file of the " +
			"authorities of this cluster"
	case strings.Contains(why, "has expired or is not yet valid"):
		return "replace the certificate of the gateway, or correct the clock of this host"
	case strings.Contains(why, "certificate is valid for"), strings.Contains(why, "certificate is not valid for"),
		strings.Contains(why, "cannot validate certificate for"):
		return "name the gateway in --gateway as its certificate does, or issue the certificate of the gateway for this host"
	}
	return ""
}
