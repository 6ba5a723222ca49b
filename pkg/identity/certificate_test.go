package identity_test

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"berth.dev/pkg/identity"
)

func of(t *testing.T, text string) (identity.Identity, error) {
	t.Helper()
	uri, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return identity.Of(&x509.Certificate{URIs: []*url.URL{uri}})
}

// A certificate has the identity that was put into it, also one for many executors. A URI
// with other escaped characters, or with parts that identities do not have, is not valid.
func TestCertificate(t *testing.T) {
	for _, name := range []string{"host", "sim-*", "*"} {
		want := identity.Identity{Cluster: "default", Role: identity.Agent, Name: name}
		if got, err := of(t, want.URI().String()); err != nil || got != want {
			t.Errorf("%v: %v, %v", want, got, err)
		}
		if got, err := of(t, want.String()); err != nil || got != want {
			t.Errorf("%v unescaped: %v, %v", want, got, err)
		}
	}
	for _, text := range []string{"berth://default/agent/a%2Fb", "berth://default/agent/a%3Fb",
		"berth://default/agent/a?b",
		"berth://default/job/a%2A", "berth://u@default/agent/a", "berth://default/agent/a%25",
		"berth://default/agent%2Fa", "berth://default/%61gent/a", "berth://default/agent/%61",
		"berth:%2F%2Fdefault/agent/a", "berth:default/agent/a", "berth:///default/agent/a",
		"berth://default/agent/sim-%252A", "berth://default/agent/sim-%2a",
		"berth://u:p@default/agent/a", "berth://default:80/agent/a", "berth://default:/agent/a",
		"berth://default/agent/a?", "berth://default/agent/a#b", "berth://default/agent/a%23b",
		"berth://default/agent/a/", "berth://default//agent/a"} {
		if got, err := of(t, text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzOf checks that the URI of each identity is the only one, except for the escape of '*',
// from which the identity is read.
func FuzzOf(f *testing.F) {
	for _, text := range []string{"berth://default/agent/host", "berth://default/agent/sim-%2A", "berth://c/agent/*",
		"berth://default/agent%2Fhost", "berth:%2F%2Fdefault/agent/a", "berth://default/job/a?b#c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := identity.Parse(text); err == nil {
			if got, err := of(t, id.URI().String()); err != nil || got != id {
				t.Errorf("the URI of %v is read as %v: %v", id, got, err)
			}
		}
		uri, err := url.Parse(text)
		if err != nil {
			return
		}
		// The text of the URL lacks an empty fragment, which the URL does not keep.
		if id, err := identity.Of(&x509.Certificate{URIs: []*url.URL{uri}}); err == nil &&
			strings.Replace(uri.String(), "*", "%2A", 1) != id.URI().String() {
			t.Errorf("%q is read as %v", text, id)
		}
	})
}
