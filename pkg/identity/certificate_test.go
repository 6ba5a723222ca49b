package identity_test

import (
	"crypto/x509"
	"net/url"
	"testing"

	"berth.dev/pkg/identity"
)

// A certificate has the identity that was put into it, also one for many executors. A name
// with other escaped characters is not valid.
func TestCertificate(t *testing.T) {
	of := func(text string) (identity.Identity, error) {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return identity.Of(&x509.Certificate{URIs: []*url.URL{uri}})
	}
	for _, name := range []string{"host", "sim-*", "*"} {
		want := identity.Identity{Cluster: "default", Role: identity.Agent, Name: name}
		if got, err := of(want.URI().String()); err != nil || got != want {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	for _, text := range []string{"berth://default/agent/a%2Fb", "berth://default/agent/a%3Fb",
		"berth://default/agent/a?b",
		"berth://default/job/a%2A", "berth://u@default/agent/a", "berth://default/agent/a%25"} {
		if got, err := of(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
