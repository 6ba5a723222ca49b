package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	xrate "golang.org/x/time/rate"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
)

// provider verifies the ID tokens of one issuer.
type provider struct {
	issuer
	cluster string
	client  *http.Client

	mu sync.Mutex
	// latest is in progress or has succeeded. It is nil before the first discovery and after a
	// failure.
	latest *discovery
}

// discovery is a request for the configuration of an issuer.
type discovery struct {
	done     chan struct{} // closed when the other fields are set
	verifier *oidc.IDTokenVerifier
	err      error
}

const (
	// issuerTimeout bounds a request to an issuer, and so the time that a caller waits for it.
	issuerTimeout = 5 * time.Second
	// An unknown key in a token makes the verifier fetch the keys of the issuer again. Anybody
	// can send such tokens, so these requests are limited.
	issuerRequests = xrate.Limit(0.2) // per second
	issuerBurst    = 5
	// maxIssuerAnswer is the maximum size of an answer of an issuer, in bytes.
	maxIssuerAnswer = 1 << 20
)

// check returns an error about the first invalid field of an entry. It neither waits for the
// issuer nor reads files.
func (entry issuer) check(cluster string) error {
	at, err := url.Parse(entry.Issuer)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return fmt.Errorf("issuer: must be an https:// URL, got %q", entry.Issuer)
	}
	if at.User != nil || strings.ContainsAny(entry.Issuer, "?# ") {
		return fmt.Errorf("issuer: must be an https:// URL without a user, a query or a fragment, got %q", entry.Issuer)
	}
	if problem := rpc.CheckAddress(net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443"))); problem != "" {
		return fmt.Errorf("issuer: must be an https:// URL whose address can exist, got %q", entry.Issuer)
	}
	if entry.Audience == "" {
		return errors.New("audience: is required")
	}
	if len(entry.Grants) == 0 || len(entry.Grants) > maxGrants {
		return fmt.Errorf("grants: must be 1 to %d, got %d", maxGrants, len(entry.Grants))
	}
	for i, g := range entry.Grants {
		if g.Claim == "" || g.Value == "" {
			return fmt.Errorf("grants[%d]: claim and value are required", i)
		}
		if slices.ContainsFunc(entry.Grants[:i], func(o grant) bool { return o.Claim == g.Claim && o.Value == g.Value }) {
			return fmt.Errorf("grants[%d]: an earlier grant has the claim %q with the value %q, and the first one counts", i,
				g.Claim, g.Value)
		}
		name := g.Name
		if name == "" {
			name = "sub"
			if g.Role == identity.Job.String() {
				return fmt.Errorf("grants[%d].name: is required for the role job, because it is the prefix of the jobs", i)
			}
		}
		if _, err := granted(cluster, g.Role, name); err != nil {
			return fmt.Errorf("grants[%d].%w", i, err)
		}
	}
	if isPEM(entry.CA) {
		_, err = authorities(entry.CA)
	}
	return err
}

// newProvider returns the provider of a valid entry. It does not wait for the issuer.
func newProvider(entry issuer, cluster string, log *slog.Logger) *provider {
	client := &http.Client{Timeout: issuerTimeout,
		Transport: limited{entry.CA, xrate.NewLimiter(issuerRequests, issuerBurst), log}}
	return &provider{issuer: entry, cluster: cluster, client: client}
}

// isPEM reports whether the authorities of an issuer are PEM itself, and not the name of a file.
func isPEM(ca string) bool { return strings.Contains(ca, "-----BEGIN ") }

// authorities returns the certificate authorities in a file or in PEM itself, by default those
// of the host.
func authorities(ca string) (*x509.CertPool, error) {
	if ca == "" {
		return nil, nil
	}
	pem, from := []byte(ca), "the PEM text"
	if !isPEM(ca) {
		var err error
		if pem, err = os.ReadFile(ca); err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		from = ca
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca: %s contains no certificate", from)
	}
	return pool, nil
}

// untrusted is in the error of a request to an issuer whose authority is unknown. The verifier
// keeps only the text of an error.
const untrusted = "issuers[].ca in the access file"

// limited is a transport that fails requests above a rate, and logs those that fail for other
// reasons. It cuts off long answers. Requests are rare, so each one reads the file of the
// authorities and opens a connection: changes of the file apply without a restart.
type limited struct {
	ca      string
	limiter *xrate.Limiter
	log     *slog.Logger
}

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.limiter.Allow() {
		return nil, fmt.Errorf("too many requests to %s", r.URL.Host)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	pool, err := authorities(l.ca)
	var res *http.Response
	if err == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
		res, err = transport.RoundTrip(r)
	}
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		err = fmt.Errorf("an unknown authority has signed its certificate; add the authority to %s: %w", untrusted, err)
	}
	switch {
	case err != nil:
		l.log.Warn("a request to the issuer of bearer tokens failed", "url", r.URL.String(), "error", err)
	case res.StatusCode >= http.StatusBadRequest:
		l.log.Warn("the issuer of bearer tokens answers with an error", "url", r.URL.String(), "status", res.Status)
	}
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxIssuerAnswer)
	}
	return res, err
}

// verify returns the identity that a token proves. matches is false if another issuer has
// issued the token.
func (p *provider) verify(ctx context.Context, bearer string) (id identity.Identity, matches bool, err error) {
	var payload struct {
		Issuer string `json:"iss"`
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(bearer, ".")[1])
	if err != nil || json.Unmarshal(text, &payload) != nil || payload.Issuer != p.Issuer {
		return id, false, nil
	}
	verifier, err := p.verifierOf(ctx)
	if err != nil {
		return id, true, p.outage(err)
	}
	verified, err := verifier.Verify(ctx, bearer)
	if err != nil && strings.HasPrefix(err.Error(), keysFailed) {
		return id, true, p.outage(err)
	}
	if err != nil {
		return id, true, denied("the bearer token of %s is not valid: %v", p.Issuer, err)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return id, true, denied("the claims of the bearer token of %s cannot be decoded: %v", p.Issuer, err)
	}
	unverified := ""
	for _, g := range p.Grants {
		if !has(claims[g.Claim], g.Value) {
			continue
		}
		if g.Claim == "email" && claims["email_verified"] != true {
			unverified = "; the issuer must verify its email (email_verified: true)"
			continue
		}
		name := g.Name
		if name == "" {
			name = nameOf(verified.Subject)
		}
		if id, err = granted(p.cluster, g.Role, name); err != nil {
			return id, true, denied("the subject %q of the bearer token cannot be a name (%v); set grants[].name in the access file",
				verified.Subject, err)
		}
		return id, true, nil
	}
	return id, true, denied("the bearer token of %s is valid, but no grant of the access file matches its claims%s",
		p.Issuer, unverified)
}

// nameOf returns the name for a subject. Bytes that names do not have, and '_', become '_' and
// two hexadecimal digits, so that different subjects have different names.
func nameOf(subject string) string {
	var name strings.Builder
	for _, b := range []byte(subject) {
		if b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b == '.' || b == '-' {
			name.WriteByte(b)
		} else {
			fmt.Fprintf(&name, "_%02x", b)
		}
	}
	return name.String()
}

// has reports whether a claim is a value, or a list that contains the value.
func has(claim any, value string) bool {
	if list, ok := claim.([]any); ok {
		return slices.Contains(list, any(value))
	}
	return claim == any(value)
}

// keysFailed is the prefix of the verifier's error if it cannot fetch the keys of the issuer.
// The error has no type.
const keysFailed = "failed to verify signature: fetching keys"

// outage returns the error for a token that cannot be verified now.
func (p *provider) outage(err error) *fault.Error {
	why := ""
	if strings.Contains(err.Error(), untrusted) {
		why = ": an unknown authority has signed the certificate of the issuer; an operator must add it to " + untrusted
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable,
		"the bearer token cannot be verified now: cannot get the keys of its issuer %s%s", p.Issuer, why).Because(err)
}

// verifierOf returns the verifier. The first call starts a discovery, and so does the first
// call after a failure. Other calls wait for its result, each until its own context ends.
func (p *provider) verifierOf(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	p.mu.Lock()
	d := p.latest
	if d == nil {
		d = &discovery{done: make(chan struct{})}
		p.latest = d
		go p.discover(d) // it must not end with this call: other calls wait for it
	}
	p.mu.Unlock()
	select {
	case <-d.done:
		return d.verifier, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// discover requests the configuration of the issuer. issuerTimeout bounds it.
func (p *provider) discover(d *discovery) {
	defer close(d.done)
	d.err = rpc.Recover(func() error {
		found, err := oidc.NewProvider(oidc.ClientContext(context.Background(), p.client), p.Issuer)
		if err == nil {
			d.verifier = found.Verifier(&oidc.Config{ClientID: p.Audience})
		}
		return err
	})
	if d.err != nil {
		p.mu.Lock()
		p.latest = nil
		p.mu.Unlock()
	}
}
