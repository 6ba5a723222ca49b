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

// Common is the configuration that every process has. Embed it with the tag
// `mapstructure:",squash"`.
type Common struct {
	Cluster     string        `mapstructure:"cluster" usage:"cluster name, which is also the prefix of its keys in etcd"`
	Etcd        []string      `mapstructure:"etcd-endpoints" usage:"etcd endpoints, host:port; https://host:port for TLS"`
	Listen      string        `mapstructure:"listen" usage:"listen address for calls; the default host is loopback, and port 0 chooses a free port"`
	HTTPListen  string        `mapstructure:"http-listen" usage:"listen address for health and metrics"`
	Replica     string        `mapstructure:"replica" usage:"replica ID; by default made of the host name, the process ID and a random number"`
	LogFormat   string        `mapstructure:"log-format" usage:"log format: json or text"`
	LogLevel    string        `mapstructure:"log-level" usage:"minimum log level: debug, info, warn or error"`
	TLSCert     string        `mapstructure:"tls-cert" usage:"PEM file of the certificate for serving and for calls"`
	TLSKey      string        `mapstructure:"tls-key" usage:"PEM file of the certificate's key"`
	TLSCA       string        `mapstructure:"tls-ca" usage:"PEM file of the certificate authorities for peers"`
	Insecure    bool          `mapstructure:"insecure" usage:"allow listeners beyond loopback without TLS"`
	AddressFile string        `mapstructure:"address-file" usage:"file that receives the bound addresses as JSON"`
	StopTimeout time.Duration `mapstructure:"stop-timeout" usage:"maximum duration of an orderly stop"`
	Pprof       bool          `mapstructure:"pprof" usage:"serve Go profiles under /debug/pprof/ on the address for health and metrics, without authentication"`

	Tracing tracing.Config `mapstructure:",squash"`
}

// The default addresses of a gateway's listeners. Its callers use the same defaults.
const (
	DefaultPublic   = "127.0.0.1:8080"
	DefaultAgents   = "127.0.0.1:8081"
	DefaultInternal = "127.0.0.1:8082"
)

// Defaults returns the common settings of a process that serves calls on one port of the
// loopback interface, and health and metrics on another. If httpPort is 0, the process
// serves both on the first port.
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

// Service is the configuration of a service with an elected leader. Embed it with the tag `mapstructure:",squash"`.
type Service struct {
	Common    `mapstructure:",squash"`
	Advertise string        `mapstructure:"advertise" usage:"host:port at which standbys and gateways reach this replica; the default is the bound address"`
	Gateways  []string      `mapstructure:"gateways" usage:"host:port of each gateway's --internal-listen"`
	TTL       time.Duration `mapstructure:"ttl" usage:"TTL of the leader's etcd lease, 2s to 60s"`

	EventRetention time.Duration `mapstructure:"event-retention" usage:"minimum retention of job events while no other limit is reached, 10s to 168h; the same for all services"`
	EventMaxPerJob int           `mapstructure:"event-max-per-job" usage:"maximum number of events per job, 100 to 10000000; the same for all services"`
	EventMaxBytes  int           `mapstructure:"event-max-bytes" usage:"maximum bytes of job events in etcd, at least 1048576; the same for all services"`
}

// ServiceDefaults returns the default settings of a service that serves on two ports of
// the loopback interface.
func ServiceDefaults(port, httpPort int) Service {
	return Service{
		Common: Defaults(port, httpPort), Gateways: []string{DefaultInternal}, TTL: 5 * time.Second,
		EventRetention: time.Hour, EventMaxPerJob: 100_000, EventMaxBytes: 512 << 20,
	}
}

// ReplicaID returns the configured ID, which stays the same after a restart. If no ID is
// configured, it returns a new unique ID.
func (c Common) ReplicaID() string {
	if c.Replica != "" {
		return c.Replica
	}
	host, err := os.Hostname()
	if err != nil {
		host = "replica"
	}
	var random [3]byte
	rand.Read(random[:]) // it never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}

// EtcdTLS returns the TLS configuration for etcd. It returns nil unless an endpoint
// starts with https. client is the TLS configuration for peers.
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

// TLS returns the TLS configurations for serving and for calls; both are nil if no certificate
// is configured. With --tls-ca, callers must present a certificate of these authorities.
func (c Common) TLS() (server, client *tls.Config, err error) {
	if c.TLSCert == "" && c.TLSKey == "" && c.TLSCA == "" {
		return nil, nil, nil
	}
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil, nil, badConfig(nil, "--tls-cert and --tls-key must be set together, and --tls-ca requires both")
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, nil, badConfig(err, "cannot load the certificate of --tls-cert and --tls-key")
	}
	server = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	client = server.Clone()
	if c.TLSCA != "" {
		pem, err := os.ReadFile(c.TLSCA)
		if err != nil {
			return nil, nil, badConfig(err, "cannot read the file of --tls-ca")
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, nil, badConfig(nil, "--tls-ca: %s contains no certificate", c.TLSCA)
		}
		server.ClientCAs, server.ClientAuth = authorities, tls.RequireAndVerifyClientCert
		client.RootCAs = authorities
	}
	return server, client, nil
}
