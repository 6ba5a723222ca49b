package running

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
)

// A cluster with TLS is refused, whether or not the address shows TLS.
func TestAClusterWithTLS(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	cluster := func(gateway, etcd string) *Cluster {
		return &Cluster{Gateways: []string{gateway}, AgentsGateways: []string{"a:1"}, Etcd: []string{etcd}, Name: "default",
			Timeout: time.Second}
	}
	for what, err := range map[string]error{
		"a gateway by its URL": cluster(server.URL, "e:1").Check(),
		"etcd by its URL":      cluster("g:1", server.URL).Check(),
		"a gateway":            cluster(server.Listener.Addr().String(), "e:1").Reach(t.Context()),
	} {
		if !fault.Is(err, fault.ReasonUnsupported) || !strings.Contains(err.Error(), "only running clusters in plain text") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
