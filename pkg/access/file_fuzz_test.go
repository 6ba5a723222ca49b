package access

import "testing"

// No access file can crash a process.
func FuzzFile(f *testing.F) {
	f.Add("tokens: [{role: operator, name: a, sha256: " + hash("x") + "}]")
	f.Add("tenants: [{name: a, limits: {workers: 1, requestsPerSecond: 1e9, highestPriority: SCALE, skus: [a]}}]")
	f.Add("issuers: [{issuer: 'https://x', audience: a, grants: [{claim: a, value: b, role: viewer}]}]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		a := &Access{cluster: cluster, log: quiet}
		if a.use([]byte(text)) == nil {
			a.Tenants().Of("a")
			a.token(t.Context(), "x") //nolint:errcheck // it must only return
		}
	})
}
