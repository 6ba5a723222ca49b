package access

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/transport"
)

// The names of the cookie with the bearer token of a browser's session. A browser accepts
// the first name only from a host with TLS itself, and not from another host of its domain. It
// requires the path / for it, so a gateway with a base path uses the second name: other
// programs on the same host do not get the cookie.
const (
	encryptedCookie = "__Host-berth"
	belowCookie     = "__Secure-berth"
	plainCookie     = "berth"
)

// maxCookie is the maximum length of a token in a cookie, in bytes. Browsers accept 4,096
// bytes with the name and the attributes.
const maxCookie = 3800

func (g *Guard) cookieName(encrypted bool) string {
	switch {
	case !encrypted:
		return plainCookie
	case g.Base != "":
		return belowCookie
	}
	return encryptedCookie
}

// cookie returns the cookie of a session. It ends with the session of the browser.
func (g *Guard) cookie(encrypted bool, token string) *http.Cookie {
	//nolint:gosec // browsers do not accept a Secure cookie in plain text
	return &http.Cookie{Name: g.cookieName(encrypted), Value: token, Path: g.Base + "/", Secure: encrypted, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
}

// The methods of sessions.
const (
	createSession = "POST /session"
	deleteSession = "DELETE /session"
)

// CreateSession verifies a bearer token, and records the outcome. It returns the cookie with
// which requests have the token's identity, and the context of the request as if this
// identity had sent it. The request must come from the handler of HTTP.
func (g *Guard) CreateSession(r *http.Request, token string) (_ context.Context, _ *http.Cookie, err error) {
	ctx, caller := r.Context(), CallerIn(r.Context())
	defer func() { g.record(ctx, caller, createSession, subject{}, err) }()
	switch {
	case g.Access == nil:
		return nil, nil, fault.New(fault.Precondition, fault.ReasonUnsupported,
			"this gateway accepts no bearer tokens: it has no --access file")
	case token == "":
		return nil, nil, fault.BadField(fault.ReasonRequired, "token", "must be set")
	case len(token) > maxCookie:
		return nil, nil, fault.BadField(fault.ReasonInvalid, "token",
			"must have at most %d bytes to fit in a cookie, got %d: use the header Authorization", maxCookie, len(token))
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`",;\`, c) }):
		return nil, nil, fault.BadField(fault.ReasonInvalid, "token",
			"must have only characters that a cookie may have: use the header Authorization")
	}
	id, err := g.Access.token(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	caller = Caller{Peer: caller.Peer, Identity: &id, Session: true}
	return context.WithValue(ctx, callerKey{}, caller), g.cookie(transport.PeerIn(ctx).Encrypted, token), nil
}

// DeleteSession records the end of a session, and returns the cookies that delete the cookie
// of the session. A gateway that gets TLS may have set one without TLS before.
func (g *Guard) DeleteSession(r *http.Request) []*http.Cookie {
	g.record(r.Context(), CallerIn(r.Context()), deleteSession, subject{}, nil)
	list := []*http.Cookie{g.cookie(true, ""), g.cookie(false, "")}
	for _, c := range list {
		c.MaxAge = -1
	}
	return list
}

// sessionToken returns the bearer token in the cookie of a request, or "" if the request has
// none. It returns an error if the cookie must not identify the caller of the request: in
// contrast to a header, a browser sends a cookie by itself, also for pages of other origins.
func (g *Guard) sessionToken(r *http.Request, encrypted bool) (string, error) {
	cookies := r.CookiesNamed(g.cookieName(encrypted))
	switch {
	case len(cookies) == 0:
		return "", nil
	case len(cookies) > 1:
		return "", denied("Cookie: must have %s once", g.cookieName(encrypted))
	case changing(r.Method) && !fromOwnPage(r, encrypted):
		return "", denied("a request that changes something and has the cookie of a session must come from a page of this gateway, and have Sec-Fetch-Site: same-origin or the Origin of the gateway (Origin %.100q, Sec-Fetch-Site %.100q)",
			r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"))
	case !changing(r.Method) && fromOtherPage(r):
		return "", denied("a page of another origin may not use the cookie of a session (Sec-Fetch-Site %.100q)",
			r.Header.Get("Sec-Fetch-Site"))
	}
	return cookies[0].Value, nil
}

func changing(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// fromOwnPage reports whether a page of the gateway has sent a request. If a proxy replaces
// the Host, only Sec-Fetch-Site proves it.
func fromOwnPage(r *http.Request, encrypted bool) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		return true
	case "", "none":
		origin, err := url.Parse(r.Header.Get("Origin"))
		return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host) &&
			(origin.Scheme == "https" || !encrypted && origin.Scheme == "http")
	}
	return false
}

// fromOtherPage reports whether a page of another origin has sent a request that reads, and
// whether that page would get the answer. If a user follows a link, the gateway's own page
// gets it.
func fromOtherPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	followed := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return (site == "cross-site" || site == "same-site") && !followed
}
