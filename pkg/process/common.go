package process

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/transport"
)

// Common is the configuration that every process has. Embed it with the tag
// `mapstructure:",squash"`.
type Common struct {
	Cluster     string        `mapstructure:"cluster" empty:"refused by CheckCluster" usage:"cluster name, which is also the prefix of its keys in etcd"`
	Etcd        []string      `mapstructure:"etcd-endpoints" form:"etcd" usage:"etcd endpoints, host:port; https://host:port for TLS"`
	Listen      string        `mapstructure:"listen" form:"listen" usage:"listen address for calls; the default host is loopback, and port 0 chooses a free port"`
	HTTPListen  string        `mapstructure:"http-listen" form:"listen" empty:"the process serves neither" usage:"listen address for health and metrics"`
	Replica     string        `mapstructure:"replica" usage:"replica ID; by default made of the host name, the process ID and a random number"`
	LogFormat   string        `mapstructure:"log-format" usage:"log format: json or text"`
	LogLevel    string        `mapstructure:"log-level" usage:"minimum log level: debug, info, warn or error"`
	AddressFile string        `mapstructure:"address-file" form:"path" usage:"file that receives the bound addresses as JSON"`
	StopTimeout time.Duration `mapstructure:"stop-timeout" least:"0s" usage:"maximum duration of an orderly stop"`
	Pprof       bool          `mapstructure:"pprof" usage:"serve Go profiles under /debug/pprof/ on the address for health and metrics; without TLS, every caller can read them"`

	Access string `mapstructure:"access" form:"path" usage:"YAML file of bearer tokens, OpenID Connect issuers and tenants"`

	EtcdCert         string `mapstructure:"etcd-cert" form:"path" usage:"PEM file of the certificate for etcd; the default is --tls-cert"`
	EtcdKey          string `mapstructure:"etcd-key" form:"path" usage:"PEM file of the key of --etcd-cert"`
	EtcdCA           string `mapstructure:"etcd-ca" form:"path" usage:"PEM file of the certificate authorities of etcd"`
	EtcdUser         string `mapstructure:"etcd-user" usage:"user name for etcd"`
	EtcdPasswordFile string `mapstructure:"etcd-password-file" form:"path" usage:"file with the password of --etcd-user"`

	Security `mapstructure:",squash"`
	Tracing  tracing.Config `mapstructure:",squash"`

	// Metrics, if set, are the metrics of a program that runs several services in one
	// process. The service serves its metrics as a part of them.
	Metrics *Metrics `mapstructure:"-"`
}

// NewMetrics returns the registry for the metrics of a service.
func (c Common) NewMetrics(service string) (*Metrics, error) {
	if c.Metrics == nil {
		return NewMetrics(func() string { return c.Cluster })
	}
	return c.Metrics.Part(service)
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
	Advertise string        `mapstructure:"advertise" form:"advertise" usage:"host:port at which standbys and gateways reach this replica; the default is the bound address"`
	Gateways  []string      `mapstructure:"gateways" form:"address" usage:"host:port of each gateway's --internal-listen"`
	TTL       time.Duration `mapstructure:"ttl" usage:"TTL of the leader's etcd lease, 2s to 60s"`

	EventRetention time.Duration `mapstructure:"event-retention" least:"10s" most:"168h" usage:"minimum retention of job events while no other limit is reached, 10s to 168h; the same for all services"`
	EventMaxPerJob int           `mapstructure:"event-max-per-job" least:"100" most:"10000000" usage:"maximum number of events per job, 100 to 10000000; the same for all services"`
	EventMaxBytes  int           `mapstructure:"event-max-bytes" least:"1048576" usage:"maximum bytes of job events in etcd, at least 1048576; the same for all services"`
}

// ServiceDefaults returns the default settings of a service that serves on two ports of
// the loopback interface.
func ServiceDefaults(port, httpPort int) Service {
	return Service{
		Common: Defaults(port, httpPort), Gateways: []string{DefaultInternal}, TTL: 5 * time.Second,
		EventRetention: time.Hour, EventMaxPerJob: 100_000, EventMaxBytes: 512 << 20,
	}
}

// Check returns every mistake in the common settings that is visible without any other file. Load
// calls it.
func (c Common) Check() error {
	errs := []error{CheckCluster(c.Cluster), CheckLog(c.LogFormat, c.LogLevel), c.Security.Check(),
		c.Tracing.Check(c.Insecure),
		transport.Config{Cert: c.EtcdCert, Key: c.EtcdKey, CA: c.EtcdCA, Options: "--etcd"}.Check(),
		c.checkLogin()}
	for _, endpoint := range c.Etcd {
		if err := c.checkEndpoint(endpoint); err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, c.CheckListen("--listen", c.Listen), c.CheckListen("--http-listen", c.HTTPListen))...)
}

// The range of TTL, which package leader also checks. Agents contain this package and not that
// one, because it needs the client of etcd.
const (
	minTTL = 2 * time.Second
	maxTTL = time.Minute
)

// Check returns every mistake in the settings of a service that is visible without any other file.
func (s Service) Check() error {
	var ttl error
	if s.TTL < minTTL || s.TTL > maxTTL {
		ttl = fault.BadField(fault.ReasonInvalid, "--ttl", "the TTL of leadership must be between %v and %v, got %v", minTTL,
			maxTTL, s.TTL)
	}
	return errors.Join(s.Common.Check(), ttl)
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
