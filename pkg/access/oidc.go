package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	xrate "golang.org/x/time/rate"

	"berth.dev/pkg/identity"
)

// provider verifies the ID tokens of one issuer.
type provider struct {
	issuer
	cluster string
	client  *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil until the issuer has answered
}

const (
	// issuerTimeout bounds a request to an issuer.
	issuerTimeout = 5 * time.Second
	// An unknown key in a token makes the verifier fetch the keys of the issuer again. Anybody
	// can send such tokens, so these requests are limited.
	issuerRequests = xrate.Limit(0.2) // per second
	issuerBurst    = 5
)

// newProvider checks an entry. It does not wait for the issuer.
func newProvider(entry issuer, cluster string) (*provider, error) {
	at, err := url.Parse(entry.Issuer)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("issuer: must be an https:// URL, got %q", entry.Issuer)
	}
	if entry.Audience == "" {
		return nil, errors.New("audience: is required")
	}
	if len(entry.Grants) == 0 || len(entry.Grants) > maxGrants {
		return nil, fmt.Errorf("grants: must be 1 to %d, got %d", maxGrants, len(entry.Grants))
	}
	for i, g := range entry.Grants {
		if g.Claim == "" || g.Value == "" {
			return nil, fmt.Errorf("grants[%d]: claim and value are required", i)
		}
		name := g.Name
		if name == "" {
			name = "sub"
			if g.Role == identity.Job.String() {
				return nil, fmt.Errorf("grants[%d].name: is required for the role job, because it is the prefix of the jobs", i)
			}
		}
		if _, err := granted(cluster, g.Role, name); err != nil {
			return nil, fmt.Errorf("grants[%d].%w", i, err)
		}
	}
	authorities, err := x509.SystemCertPool()
	if err != nil {
		authorities = x509.NewCertPool()
	}
	if entry.CA != "" {
		pem, err := os.ReadFile(entry.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if authorities = x509.NewCertPool(); !authorities.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s contains no certificate", entry.CA)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}
	transport.DisableKeepAlives = true // requests are rare
	return &provider{issuer: entry, cluster: cluster, client: &http.Client{Timeout: issuerTimeout,
		Transport: limited{transport, xrate.NewLimiter(issuerRequests, issuerBurst)}}}, nil
}

// limited is a transport that fails requests above a rate.
type limited struct {
	http.RoundTripper
	limiter *xrate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.limiter.Allow() {
		return nil, fmt.Errorf("too many requests to %s", r.URL.Host)
	}
	return l.RoundTripper.RoundTrip(r)
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
		return id, true, denied("the bearer token cannot be verified: %s does not answer: %v", p.Issuer, err)
	}
	verified, err := verifier.Verify(oidc.ClientContext(ctx, p.client), bearer)
	if err != nil {
		return id, true, denied("the bearer token of %s is not valid: %v", p.Issuer, err)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return id, true, denied("the claims of the bearer token of %s cannot be decoded: %v", p.Issuer, err)
	}
	for _, g := range p.Grants {
		if !has(claims[g.Claim], g.Value) {
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
	return id, true, denied("the bearer token of %s is valid, but no grant of the access file matches its claims",
		p.Issuer)
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

// verifierOf returns the verifier. It asks the issuer for its configuration with the first
// token.
func (p *provider) verifierOf(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verifier != nil {
		return p.verifier, nil
	}
	// The key set keeps this context for its own requests, so it must not end with the call.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		return nil, err
	}
	p.verifier = found.Verifier(&oidc.Config{ClientID: p.Audience})
	return p.verifier, nil
}
