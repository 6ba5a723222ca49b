package rpc

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
)

// Unreached is a process that did not answer a call, and the cause in a few words, such as
// "connection refused".
type Unreached struct {
	Address, Cause string
}

// String returns the address and the cause.
func (u Unreached) String() string { return fmt.Sprintf("%s (%s)", u.Address, u.Cause) }

// Join returns the addresses and causes of a list as one text.
func Join(list []Unreached) string {
	texts := make([]string, len(list))
	for i, u := range list {
		texts[i] = u.String()
	}
	return strings.Join(texts, ", ")
}

// Reach is what the last call of each replica of a service showed.
type Reach struct {
	// Answered is the number of replicas that answered. Leads reports whether one of them said
	// that it leads.
	Answered int
	Leads    bool
	// Unreached has the replicas that did not answer, in the order in which they are configured.
	Unreached []Unreached
}

// Fault returns the error of a call that no leader of the service answered in time. It names
// the addresses that did not answer. It says that the service has no leader only if a replica
// answered and none leads.
func (r Reach) Fault(service string) *fault.Error {
	message, others := "", ""
	if len(r.Unreached) > 0 {
		others = "; no answer from " + Join(r.Unreached)
	}
	switch {
	case r.Leads:
		message = "the leader of " + service + " did not answer in time" + others
	case r.Answered > 0:
		message = service + " has no leader" + others
	case others != "":
		message = "no replica of " + service + " answers: " + Join(r.Unreached)
	default:
		message = "no replica of " + service + " has answered yet"
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s", message).With("service", service)
}

// refusedAlert matches the errors of crypto/tls for the alerts with which the other end refuses the
// certificate of the caller.
var refusedAlert = regexp.MustCompile(
	`remote error: tls: ((?:bad|expired|revoked|unknown|unsupported) certificate(?: authority)?)`)

// RefusedCertificate returns why the other end refuses the certificate of the caller, given the text of
// the error of a connection; "" if it does not refuse it.
func RefusedCertificate(text string) string {
	found := refusedAlert.FindStringSubmatch(text)
	switch {
	case found == nil:
		return ""
	case found[1] == "expired certificate": // TLS has one alert for both
		return "expired or not valid yet"
	}
	return found[1]
}

// causes has the errors of gRPC for a connection that cannot be used, and the cause that each
// one shows. The first match counts.
var causes = []struct {
	of    *regexp.Regexp
	cause string
}{
	{regexp.MustCompile(`: connection refused`), "connection refused"},
	{regexp.MustCompile(`: no such host`), "no such host"},
	{regexp.MustCompile(`dial tcp: lookup `), "the name cannot be resolved"},
	{regexp.MustCompile(`: no route to host`), "no route to host"},
	{regexp.MustCompile(`: network is unreachable`), "network is unreachable"},
	{regexp.MustCompile(`dial tcp .*: i/o timeout`), "connection timed out"},
	{regexp.MustCompile(`first record does not look like a TLS handshake`), "TLS: it answers in plain text"},
	{regexp.MustCompile(`authentication handshake failed: (context deadline exceeded|EOF|read tcp)`),
		"TLS: it does not answer the handshake"},
	{regexp.MustCompile(`authentication handshake failed: (?:tls: failed to verify certificate: )?(?:x509: )?(.*?)"?$`),
		"TLS: $1"},
	{regexp.MustCompile(`error reading server preface: remote error: (?:tls: )?(.*?)"?$`), "TLS: $1"},
	{regexp.MustCompile(`looked like an HTTP/1.1 header|unexpected HTTP status code`), "it is another server"},
	{regexp.MustCompile(`http2: frame too large`), "it speaks another protocol, such as TLS or plain HTTP"},
	{regexp.MustCompile(`connection reset by peer|broken pipe|: EOF|server preface: EOF`),
		"it closed the connection; it may require TLS"},
	{regexp.MustCompile(`error reading server preface`), "no answer in time"},
}

// Cause describes in a few words why a call got no answer, given its error.
func Cause(err error) string {
	code, text := status.Code(err), FromStatus(err).Message
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	if why := RefusedCertificate(text); why != "" {
		return "TLS: it refused the certificate of the caller: " + why
	}
	for _, c := range causes {
		if found := c.of.FindStringSubmatchIndex(text); found != nil {
			return string(c.of.ExpandString(nil, c.cause, text, found))
		}
	}
	switch code {
	case codes.DeadlineExceeded:
		return "no answer in time"
	case codes.Unimplemented:
		return "it is another server"
	}
	return text
}
