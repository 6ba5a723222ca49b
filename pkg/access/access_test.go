package access

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	xrate "golang.org/x/time/rate"
	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	_ "berth.dev/testkit/fixedseed"
)

func TestMain(m *testing.M) {
	// The key set of go-oidc ends its last request in the background.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*http2clientConnReadLoop).run"),
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

const cluster = "default"

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, text string) *Access {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Open(name, cluster, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestTokens(t *testing.T) {
	a := open(t, "tokens:\n- {role: operator, name: alice, sha256: "+hash("secret")+"}\n"+
		"- {role: job, name: train, sha256: "+hash("other")+"}\n")
	for token, want := range map[string]string{
		"secret": "berth://default/operator/alice", "other": "berth://default/job/train", "": "", "Secret": "", "a.b.c": "",
		strings.Repeat("x", maxToken+1): "",
	} {
		id, err := a.token(t.Context(), token)
		if want != "" && (err != nil || id.String() != want) {
			t.Errorf("%.10q: %v, %v", token, id, err)
		}
		if f := fault.Of(err); want == "" && f.Kind != fault.Denied {
			t.Errorf("%.10q: %v, %v", token, id, err)
		}
	}
	var none *Access
	if _, err := none.token(t.Context(), "secret"); err == nil {
		t.Error("a token without an access file is accepted")
	}
}

func TestInvalidFilesNameTheField(t *testing.T) {
	for text, want := range map[string]string{
		"tokenz: []":            "tokenz",
		"":                      "the file is empty",
		" \n# tokens: []\n":     "the file is empty",
		"---\n":                 "the file is empty",
		"null":                  "the file is empty",
		"tokens: []\n---\n{}":   "one YAML document",
		"tokens: []\n---\n":     "one YAML document",
		"tokens: []\n---\na: [": "one YAML document",
		"tokens: [{role: king, name: a, sha256: 00}]":                                              "tokens[0].role: must be one of job",
		"tokens: [{role: agent, name: a, sha256: 00}]":                                             "tokens[0].role: only a certificate",
		"tokens: [{role: viewer, name: a b, sha256: 00}]":                                          "tokens[0].name: must be letters",
		"tokens: [{role: viewer, name: a, sha256: 00}]":                                            "tokens[0].sha256: must be",
		"tenants: [{name: ''}]":                                                                    "tenants[0].name: must be",
		"tenants: [{name: a, prefix: /}]":                                                          "tenants[0].prefix: must be",
		"tenants: [{name: a}, {name: a, prefix: b}]":                                               "tenants[1].name: an earlier",
		"tenants: [{name: a}, {name: b, prefix: a}]":                                               "tenants[1].prefix: an earlier",
		"tenants: [{name: a, limits: {workers: -1}}]":                                              "tenants[0].limits.workers: must",
		"tenants: [{name: a, limits: {requestsPerSecond: .nan}}]":                                  "tenants[0].limits.requestsPerSecond",
		"tenants: [{name: a, limits: {highestPriority: ALL}}]":                                     "tenants[0].limits.highestPriority",
		"tenants: [{name: a, limits: {workers: 2.5}}]":                                             "/access.yaml:1: tenants[0].limits.workers: must be a whole number",
		"tenants: [{name: a, limits: {workers: 0012}}]":                                            "tenants[0].limits.workers: must be a whole number",
		"tenants: [{name: a, limits: {workers: }}]":                                                "tenants[0].limits.workers: has no value",
		"tenants: [{name: a, limits: {skus: a}}]":                                                  "tenants[0].limits.skus: must be a list",
		"tenants: [{name: a, Name: a}]":                                                            "tenants[0].Name: unknown key",
		"tenants: [{name: a, name: a}]":                                                            "tenants[0].name: is set twice",
		"tenants: [{name: a, limits: {wokers: 1}}]":                                                "wokers",
		"issuers: [{issuer: 'http://x'}]":                                                          "issuers[0].issuer: must be an https",
		"issuers: [{issuer: 'https://x'}]":                                                         "issuers[0].audience: is required",
		"issuers: [{issuer: 'https://x', audience: a}]":                                            "issuers[0].grants: must be",
		"issuers: [{issuer: 'https://x', audience: a, grants: [{role: viewer}]}]":                  "issuers[0].grants[0]: claim",
		"issuers: [{issuer: 'https://x', audience: a, grants: [{role: job, claim: a, value: b}]}]": "issuers[0].grants[0].name",
		"issuers: [{issuer: 'https://x', audience: a, grants: [{role: x, claim: a, value: b}]}]":   "issuers[0].grants[0].role",
		"issuers: [&i {issuer: 'https://x', audience: a, grants: [{role: viewer, claim: a, value: b}]}, {<<: *i, audience: b}]":             "issuers[1].issuer: an earlier entry",
		"issuers: [{issuer: 'https://x', audience: a, ca: /no, grants: [{role: viewer, claim: a, value: b}]}]":                              "issuers[0].ca: open /no",
		"tokens: [{role: viewer, name: a, sha256: " + hash("") + "}]":                                                                       "tokens[0].sha256: is the hash of an empty text",
		"tokens: [{role: viewer, name: a, sha256: " + hash("\n") + "}]":                                                                     "tokens[0].sha256: is the hash of an empty text",
		"tenants: [{name: a, limits: {skus: [b, '']}}]":                                                                                     "tenants[0].limits.skus: must be names",
		"tenants: [{name: a, limits: {pools: ['']}}]":                                                                                       "tenants[0].limits.pools: must be names",
		"tenants: [{name: a, limits: {workers: 2000000000000000}}]":                                                                         "tenants[0].limits.workers: must be between 0 and 1125899906842624",
		"issuers: [{issuer: 'https://x/a?b=c', audience: a, grants: [{role: viewer, claim: a, value: b}]}]":                                 "issuers[0].issuer: must be an https:// URL without",
		"issuers: [{issuer: 'https://x/#a', audience: a, grants: [{role: viewer, claim: a, value: b}]}]":                                    "issuers[0].issuer: must be an https:// URL without",
		"issuers: [{issuer: 'https://a:b@x', audience: a, grants: [{role: viewer, claim: a, value: b}]}]":                                   "issuers[0].issuer: must be an https:// URL without",
		"issuers: [{issuer: 'https://:443', audience: a, grants: [{role: viewer, claim: a, value: b}]}]":                                    "issuers[0].issuer: must be an https:// URL whose",
		"issuers: [{issuer: 'https://x:70000', audience: a, grants: [{role: viewer, claim: a, value: b}]}]":                                 "issuers[0].issuer: must be an https:// URL whose",
		"issuers: [{issuer: 'https://x', audience: a, ca: '-----BEGIN CERTIFICATE-----', grants: [{role: viewer, claim: a, value: b}]}]":    "issuers[0].ca: the PEM text contains no certificate",
		"issuers: [{issuer: 'https://x', audience: a, grants: [{role: viewer, claim: a, value: b}, {role: operator, claim: a, value: b}]}]": "issuers[0].grants[1]: an earlier grant",
		"tokens: [" + strings.Repeat("{}, ", maxTokens+1) + "]":                                                                             "tokens: must be at most 10000, got 10001",
		"issuers: [" + strings.Repeat("{}, ", maxIssuers+1) + "]":                                                                           "issuers: must be at most 10, got 11",
		"tokens: [{}]\ntenants: [{}]":                  "/access.yaml:1: tokens[0].role: must be one of job, autoscaler, viewer or operator, got \"\"; /access.yaml:2: tenants[0].name: must be",
		"tokens: [" + strings.Repeat("{}, ", 12) + "]": "got \"\"; and 2 more problems",
	} {
		name := filepath.Join(t.TempDir(), "access.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		problems, err := CheckFile(name)
		if wantsFile := strings.Contains(text, "ca: /no"); err != nil || (len(problems) == 0) != wantsFile {
			t.Errorf("%.200s: the check without other files finds %v, %v", text, problems, err)
		}
		a := &Access{name: "/access.yaml", cluster: cluster, log: quiet}
		if err := a.use([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v, want %s", text, err, want)
		}
	}
}

// A file can say that there are no tokens.
func TestFilesWithoutTokens(t *testing.T) {
	for _, text := range []string{"{}", "tokens: []", "---\ntokens: []\n...\n"} {
		if err := (&Access{cluster: cluster, log: quiet}).use([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A changed file takes effect. An invalid file changes nothing.
func TestReload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "access.yaml")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{}")
	a, err := Open(name, cluster, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	before := a.Tenants()
	write("tenants: [{name: train, limits: {workers: 5}}]")
	for a.Tenants().Of("train-eu") == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if before.Of("train-eu") != nil {
		t.Error("the earlier tenants changed")
	}
	for _, text := range []string{"tenants: 5", ""} {
		if err := a.use([]byte(text)); err == nil {
			t.Errorf("the file %q is accepted", text)
		}
	}
	if got := a.Tenants().Of("train"); got == nil || got.Limits.Workers != 5 {
		t.Errorf("tenant %+v", got)
	}
}

// Requests above the rate of a tenant are rejected with the limit and the current value.
func TestTheRateOfATenant(t *testing.T) {
	a := open(t, "tenants: [{name: train, limits: {requestsPerSecond: 3}}]")
	// flood sends requests of a job service for a job until one is rejected.
	flood := func(name, job string) (sent int, err error) {
		for ; err == nil && sent < 1000; sent++ {
			if err = a.pace(name, ""); err == nil {
				err = a.pace(job, name)
			}
		}
		return sent, err
	}
	sent, err := flood("train-eu", "train-eu-1")
	f := fault.Of(err)
	if f.Reason != fault.ReasonTenantLimit || f.Kind != fault.Exhausted ||
		f.Meta["limit"] != model.LimitRequestsPerSecond ||
		f.Meta["max"] != "3" || f.Meta["current"] == "" || sent < 4 {
		t.Errorf("after %d requests: %+v", sent, f)
	}
	if _, err := flood("training", "training-1"); err != nil {
		t.Error(err)
	}
	// A reload with the same rate does not reset the limit.
	if err := a.use([]byte("tenants: [{name: train, limits: {requestsPerSecond: 3, workers: 1}}]")); err != nil {
		t.Fatal(err)
	}
	if sent, err := flood("train", "train"); err == nil || sent > 4 {
		t.Error("the reload has reset the limit")
	}
}

// A request counts for the tenant of its job even if the job service is for jobs of several
// tenants, and for each tenant once.
func TestTheRateOfTheTenantOfAJob(t *testing.T) {
	a := open(t, "tenants: [{name: all, prefix: acme, limits: {requestsPerSecond: 9}}, "+
		"{name: eu, prefix: acme-eu, limits: {requestsPerSecond: 2}}]")
	counts := func() (all, eu int) {
		rates := a.current.Load().rates
		return rates["all"].count, rates["eu"].count
	}
	for _, name := range []string{"acme", "acme-eu"} {
		if err := errors.Join(a.pace(name, ""), a.pace("acme-eu-1", name)); err != nil {
			t.Fatal(err)
		}
	}
	if all, eu := counts(); all != 1 || eu != 2 {
		t.Errorf("%d requests of all and %d of eu", all, eu)
	}
	if err := a.pace("acme-eu-1", "acme"); err == nil {
		t.Error("the request is above the rate of eu")
	}
}

// identityProvider is an OpenID Connect provider.
type identityProvider struct {
	*httptest.Server
	key      *rsa.PrivateKey
	requests atomic.Int64
	// instead, if set, answers the requests.
	instead atomic.Pointer[http.HandlerFunc]
}

func newIdentityProvider(t *testing.T) *identityProvider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &identityProvider{key: key}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, body any) {
		json.NewEncoder(w).Encode(body) //nolint:errcheck // the client would fail
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL,
			"token_endpoint": p.URL, "id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k",
			"n": raw(key.N.Bytes()), "e": raw(big.NewInt(int64(key.E)).Bytes())}}})
	})
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		if instead := p.instead.Load(); instead != nil {
			(*instead)(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// answer makes a handler answer the requests; with nil, the provider answers again.
func (p *identityProvider) answer(instead http.HandlerFunc) {
	if instead == nil {
		p.instead.Store(nil)
		return
	}
	p.instead.Store(&instead)
}

// file returns an access file with the provider.
func (p *identityProvider) file(t *testing.T) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`issuers:
- issuer: %s
  audience: berth
  ca: %s
  grants:
  - {claim: groups, value: sre, role: operator}
  - {claim: email, value: ci@example.com, role: job, name: train}
`, p.URL, ca)
}

// claims returns the claims of an operator, with changes.
func (p *identityProvider) claims(change map[string]any) map[string]any {
	all := map[string]any{"iss": p.URL, "aud": "berth", "sub": "alice@example.com", "groups": []string{"dev", "sre"},
		"exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, change)
	return all
}

func raw(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token returns a signed ID token.
func (p *identityProvider) token(t *testing.T, kid string, claims map[string]any) string {
	t.Helper()
	head, err := json.Marshal(map[string]any{"alg": "RS256", "kid": kid})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := raw(head) + "." + raw(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + raw(signature)
}

func TestOpenIDConnect(t *testing.T) {
	p := newIdentityProvider(t)
	a, claims := open(t, p.file(t)), p.claims
	for _, c := range []struct {
		name  string
		token string
		want  string // the identity or the error
	}{
		{"a group", p.token(t, "k", claims(nil)), "berth://default/operator/alice_40example.com"},
		{"an unusable subject", p.token(t, "k", claims(map[string]any{"sub": "|alice"})), "set grants[].name"},
		{"a job service", p.token(t, "k", claims(map[string]any{"groups": "dev", "email": "ci@example.com",
			"email_verified": true})), "berth://default/job/train"},
		{"an unverified email", p.token(t, "k", claims(map[string]any{"groups": "dev", "email": "ci@example.com",
			"email_verified": false})), "(email_verified: true)"},
		{"an email that may be unverified", p.token(t, "k", claims(map[string]any{"groups": "dev",
			"email": "ci@example.com"})), "(email_verified: true)"},
		{"no grant", p.token(t, "k", claims(map[string]any{"groups": "dev"})), "no grant of the access file matches"},
		{"another audience", p.token(t, "k", claims(map[string]any{"aud": "other"})), "is not valid"},
		{"expired", p.token(t, "k", claims(map[string]any{"exp": 1})), "is not valid"},
		{"another issuer", p.token(t, "k", claims(map[string]any{"iss": "https://example.com"})), "is unknown"},
		{"a forged signature", p.token(t, "k", claims(nil))[:100] + "." + raw([]byte("x")) + ".x", "is unknown"},
	} {
		id, err := a.token(t.Context(), c.token)
		if got := fmt.Sprint(id, err); !strings.Contains(got, c.want) || (err == nil) != strings.HasPrefix(c.want, "berth:") {
			t.Errorf("%s: %s, %v", c.name, id, err)
		}
	}
	// Tokens with unknown keys cannot make Berth send many requests to the issuer.
	for i := range 50 {
		if _, err := a.token(t.Context(), p.token(t, fmt.Sprint("unknown", i), claims(nil))); err == nil {
			t.Error("a token with an unknown key is accepted")
		}
	}
	if n := p.requests.Load(); n > issuerBurst+2 {
		t.Errorf("%d requests to the issuer", n)
	}
}

// waiting is the context of a call that waits for an issuer.
type waiting struct {
	context.Context
	waits chan<- struct{} // receives when the call begins to wait
}

func (w waiting) Done() <-chan struct{} {
	w.waits <- struct{}{}
	return w.Context.Done()
}

// All calls wait for the same answer of a slow issuer, each until its own context ends. The
// next call asks again.
func TestASlowIssuer(t *testing.T) {
	p := newIdentityProvider(t)
	a := open(t, p.file(t))
	token := p.token(t, "k", p.claims(nil))
	release := make(chan struct{})
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	const calls = 5
	waits, errs := make(chan struct{}, calls), make(chan error, calls)
	for range calls {
		go func() {
			_, err := a.token(waiting{context.Background(), waits}, token)
			errs <- err
		}()
		<-waits
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.token(ended, token); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose context has ended: %v", err)
	}
	close(release)
	for range calls {
		if err := <-errs; !fault.Is(err, fault.ReasonUnavailable) {
			t.Errorf("after an error of the issuer: %v", err)
		}
	}
	if n := p.requests.Load(); n != 1 {
		t.Errorf("%d requests to the issuer", n)
	}
	p.answer(nil)
	if id, err := a.token(t.Context(), token); err != nil {
		t.Errorf("after the outage: %v, %v", id, err)
	}
}

// A token that needs an answer of an issuer that fails can be repeated, and is not rejected.
// Others are accepted or rejected by the keys that are known.
func TestAnOutageOfTheIssuer(t *testing.T) {
	p := newIdentityProvider(t)
	a := open(t, p.file(t))
	good, other := p.token(t, "k", p.claims(nil)), p.token(t, "unknown", p.claims(nil))
	expired := p.token(t, "k", p.claims(map[string]any{"exp": 1}))
	a.current.Load().issuers[0].client.Transport.(limited).limiter.SetLimit(xrate.Inf)
	expect := func(what, token string, want fault.Kind) {
		t.Helper()
		if _, err := a.token(t.Context(), token); err == nil || fault.Of(err).Kind != want {
			t.Errorf("%s: %v, want the kind %v", what, err, want)
		}
	}
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	p.answer(fails)
	expect("without keys", good, fault.Unavailable)
	expect("without keys, expired", expired, fault.Unavailable)
	p.answer(nil)
	if _, err := a.token(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	p.answer(fails)
	if _, err := a.token(t.Context(), good); err != nil {
		t.Errorf("with keys: %v", err)
	}
	expect("with keys, expired", expired, fault.Denied)
	expect("another key", other, fault.Unavailable)
	p.answer(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("busy")) }) //nolint:errcheck // the client would fail
	expect("another key, and an answer without keys", other, fault.Unavailable)
	written := make(chan int, 1)
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		for chunk := make([]byte, 64<<10); ; n += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				written <- n
				return
			}
		}
	})
	expect("another key, and an endless answer", other, fault.Unavailable)
	if n := <-written; n > 100*maxIssuerAnswer {
		t.Errorf("%d bytes of an endless answer were read", n)
	}
	p.Close()
	expect("another key, and no answer", other, fault.Unavailable)
}

// A reload keeps the keys of the issuers whose entries did not change.
func TestAReloadKeepsTheKeysOfIssuers(t *testing.T) {
	p := newIdentityProvider(t)
	text := p.file(t)
	a := open(t, text)
	token := p.token(t, "k", p.claims(nil))
	if _, err := a.token(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := a.use([]byte(text + "tokens: [{role: viewer, name: bob, sha256: " + hash("x") + "}]\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.token(t.Context(), token); err != nil {
		t.Errorf("after a reload: %v", err)
	}
	if err := a.use([]byte(strings.Replace(text, "audience: berth", "audience: other", 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := a.token(t.Context(), token); !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("after a change of the entry: %v", err)
	}
}

// A change of the file of an issuer's authorities applies to the next request to the issuer.
func TestTheAuthoritiesOfAnIssuerChange(t *testing.T) {
	p := newIdentityProvider(t)
	a := open(t, p.file(t))
	ca := a.current.Load().issuers[0].CA
	right, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := certs.Init(dir, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, certs.AuthorityCert), ca); err != nil {
		t.Fatal(err)
	}
	token := p.token(t, "k", p.claims(nil))
	if _, err := a.token(t.Context(), token); !fault.Is(err, fault.ReasonUnavailable) ||
		!strings.Contains(err.Error(), "add it to issuers[].ca in the access file") {
		t.Errorf("with other authorities: %v", err)
	}
	if err := os.WriteFile(ca, right, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.token(t.Context(), token); err != nil {
		t.Errorf("with the right authorities: %v", err)
	}
}

// The authorities of an issuer can be in the access file itself. If the keys of an issuer must be
// requested again, and its authority has changed, the error says so too.
func TestTheAuthoritiesOfAnIssuerInTheFile(t *testing.T) {
	p := newIdentityProvider(t)
	text := p.file(t)
	name := regexp.MustCompile(`ca: (.*)`).FindStringSubmatch(text)[1]
	right, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, strings.Replace(text, "ca: "+name, fmt.Sprintf("ca: %q", right), 1))
	if id, err := a.token(t.Context(), p.token(t, "k", p.claims(nil))); err != nil || id.Role != identity.Operator {
		t.Errorf("%v, %v", id, err)
	}
	a = open(t, text)
	if _, err := a.token(t.Context(), p.token(t, "k", p.claims(nil))); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := certs.Init(dir, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, certs.AuthorityCert), name); err != nil {
		t.Fatal(err)
	}
	if _, err := a.token(t.Context(), p.token(t, "unknown", p.claims(nil))); !fault.Is(err, fault.ReasonUnavailable) ||
		!strings.Contains(err.Error(), "add it to issuers[].ca in the access file") {
		t.Errorf("another key, and another authority: %v", err)
	}
	err = a.use([]byte(strings.Replace(text, "ca: "+name, `ca: "-----BEGIN CERTIFICATE-----"`, 1)))
	if err == nil || !strings.Contains(err.Error(), "issuers[0].ca: the PEM text contains no certificate") {
		t.Errorf("a text without a certificate: %v", err)
	}
}

// Different subjects have different names, and names of common subjects are valid.
func TestNamesOfSubjects(t *testing.T) {
	for subject, want := range map[string]string{
		"auth0|123": "auth0_7c123", "system:serviceaccount:ns:ci": "system_3aserviceaccount_3ans_3aci", "josé": "jos_c3_a9",
		"a/b": "a_2fb", "a_b": "a_5fb", "a_2fb": "a_5f2fb", "a.b-C9": "a.b-C9",
	} {
		got := nameOf(subject)
		if _, err := granted(cluster, "viewer", got); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", subject, got, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		subject := rapid.StringN(0, -1, 100).Draw(t, "subject")
		if back, err := url.PathUnescape(strings.ReplaceAll(nameOf(subject), "_", "%")); err != nil || back != subject {
			t.Errorf("%q becomes %q, which stands for %q: %v", subject, nameOf(subject), back, err)
		}
	})
}
