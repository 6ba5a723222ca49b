package process

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"berth.dev/pkg/tracing"
)

// Common is the part of the configuration that every process has. Embed it
// with the tag `mapstructure:",squash"`.
type Common struct {
	Cluster     string        `mapstructure:"cluster" usage:"name of the cluster, and of its prefix in etcd"`
	Etcd        []string      `mapstructure:"etcd-endpoints" usage:"etcd endpoints, host:port; https://host:port for TLS"`
	Listen      string        `mapstructure:"listen" usage:"address to serve calls on; no host means loopback, port 0 picks one"`
	HTTPListen  string        `mapstructure:"http-listen" usage:"address to serve health and metrics on"`
	Replica     string        `mapstructure:"replica" usage:"id of this replica; made up from host and pid unless given"`
	LogFormat   string        `mapstructure:"log-format" usage:"json or text"`
	LogLevel    string        `mapstructure:"log-level" usage:"debug, info, warn or error"`
	TLSCert     string        `mapstructure:"tls-cert" usage:"certificate file (PEM) to serve and call with"`
	TLSKey      string        `mapstructure:"tls-key" usage:"key file (PEM) of the certificate"`
	TLSCA       string        `mapstructure:"tls-ca" usage:"file (PEM) of the authorities that peers must be signed by"`
	Insecure    bool          `mapstructure:"insecure" usage:"allow listening beyond loopback without TLS"`
	AddressFile string        `mapstructure:"address-file" usage:"file to write the bound addresses to, as JSON"`
	StopTimeout time.Duration `mapstructure:"stop-timeout" usage:"how long an orderly stop may take"`
	Pprof       bool          `mapstructure:"pprof" usage:"serve Go's profiles below /debug/pprof/ of the address for health and metrics, to whoever reaches it"`

	Tracing tracing.Config `mapstructure:",squash"`
}

// The default addresses of a gateway's listeners, which its callers go by too.
const (
	DefaultPublic   = "127.0.0.1:8080"
	DefaultAgents   = "127.0.0.1:8081"
	DefaultInternal = "127.0.0.1:8082"
)

// Defaults are the common settings of a process that serves calls on a port of
// the loopback interface, and health and metrics on another: port 0 has it
// serve both on the first.
func Defaults(port, httpPort int) Common {
	c := Common{
		Cluster:     "default",
		Etcd:        []string{"127.0.0.1:2379"},
		Listen:      fmt.Sprintf("127.0.0.1:%d", port),
		LogFormat:   "text",
		LogLevel:    "info",
		StopTimeout: 10 * time.Second,
		Tracing:     tracing.Defaults(),
	}
	if httpPort != 0 {
		c.HTTPListen = fmt.Sprintf("127.0.0.1:%d", httpPort)
	}
	return c
}

// Service is the configuration that the services with an elected leader share.
// Embed it with the tag `mapstructure:",squash"`.
type Service struct {
	Common    `mapstructure:",squash"`
	Advertise string        `mapstructure:"advertise" usage:"address of this very replica, host:port, which standbys and gateways dial; the bound one unless given"`
	Gateways  []string      `mapstructure:"gateways" usage:"addresses of the gateways' --internal-listen, host:port"`
	TTL       time.Duration `mapstructure:"ttl" usage:"TTL of the etcd lease that leadership is held on, 2s to 60s"`

	EventRetention time.Duration `mapstructure:"event-retention" usage:"how long job events are kept at least, 10s to 168h, while no other limit is reached; the same for all services"`
	EventMaxPerJob int           `mapstructure:"event-max-per-job" usage:"how many events of one job are kept, 100 to 10000000; the same for all services"`
	EventMaxBytes  int           `mapstructure:"event-max-bytes" usage:"how many bytes of job events are kept in etcd, at least 1048576; the same for all services"`
}

// ServiceDefaults are the settings of a service on two ports of the loopback
// interface.
func ServiceDefaults(port, httpPort int) Service {
	return Service{
		Common: Defaults(port, httpPort), Gateways: []string{DefaultInternal}, TTL: 5 * time.Second,
		EventRetention: time.Hour, EventMaxPerJob: 100_000, EventMaxBytes: 512 << 20,
	}
}

// ReplicaID is the configured id, which a restart keeps, or one that no other
// process has had.
func (c Common) ReplicaID() string {
	if c.Replica != "" {
		return c.Replica
	}
	host, err := os.Hostname()
	if err != nil {
		host = "replica"
	}
	var random [3]byte
	rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}

// EtcdTLS is what to call etcd with, given what peers are called with: nil
// unless an endpoint begins with https.
func (c Common) EtcdTLS(client *tls.Config) *tls.Config {
	for _, endpoint := range c.Etcd {
		if strings.HasPrefix(endpoint, "https://") {
			if client == nil {
				return &tls.Config{MinVersion: tls.VersionTLS12}
			}
			return client
		}
	}
	return nil
}

// TLS is what to serve and to call with; both are nil when no certificate is
// configured. With authorities configured, callers must show a certificate of
// theirs.
func (c Common) TLS() (server, client *tls.Config, err error) {
	if c.TLSCert == "" && c.TLSKey == "" && c.TLSCA == "" {
		return nil, nil, nil
	}
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil, nil, badConfig(nil, "--tls-cert and --tls-key go together, and --tls-ca needs both")
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, nil, badConfig(err, "--tls-cert and --tls-key cannot be used")
	}
	server = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	client = server.Clone()
	if c.TLSCA != "" {
		pem, err := os.ReadFile(c.TLSCA)
		if err != nil {
			return nil, nil, badConfig(err, "--tls-ca cannot be read")
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, nil, badConfig(nil, "--tls-ca %s holds no certificate", c.TLSCA)
		}
		server.ClientCAs, server.ClientAuth = authorities, tls.RequireAndVerifyClientCert
		client.RootCAs = authorities
	}
	return server, client, nil
}
