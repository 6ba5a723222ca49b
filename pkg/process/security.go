package process

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

// Security is the configuration of the connections of a process. Embed it with the tag
// `mapstructure:",squash"`.
type Security struct {
	TLSCert  string `mapstructure:"tls-cert" form:"path" usage:"PEM file of the certificate for serving and for calls"`
	TLSKey   string `mapstructure:"tls-key" form:"path" usage:"PEM file of the certificate's key"`
	TLSCA    string `mapstructure:"tls-ca" form:"path" usage:"PEM file of the certificate authorities for peers"`
	TLSMode  string `mapstructure:"tls-mode" usage:"with --tls-cert: require encrypts all connections; prefer also accepts plain text; allow also calls in plain text"`
	Insecure bool   `mapstructure:"insecure" usage:"allow plain text beyond loopback: on listeners, and to etcd and the collector of traces"`
	AuditLog string `mapstructure:"audit-log" form:"path" usage:"file for the audit log, in lines of JSON; - is standard output"`
}

// Check returns an error if options are missing or invalid. It reads no file.
func (s Security) Check() error {
	return transport.Config{Cert: s.TLSCert, Key: s.TLSKey, CA: s.TLSCA, Mode: transport.Mode(s.TLSMode),
		Roles: identity.Service}.Check()
}

// encrypted reports whether all listeners require TLS.
func (s Security) encrypted() bool {
	return s.TLSCert != "" && cmp.Or(transport.Mode(s.TLSMode), transport.Require) == transport.Require
}

// Secured is the security of a running process: its certificates, its access file and its
// audit log.
type Secured struct {
	*transport.Transport
	Access *access.Access
	Audit  *access.Audit

	cluster string
	log     *slog.Logger
	etcd    *transport.Transport
	lines   *rate.Limiter
	stop    []func() // end the reads of secrets
	// calls and connections count what was rejected.
	calls, connections atomic.Int64
}

// Secure opens the files of Security for a process that belongs to a cluster and has one of
// the roles. An empty cluster is the one in the certificate. A gateway keeps the newest
// entries of its audit log in memory, also without a file.
func (s Security) Secure(cluster string, roles identity.Role, log *slog.Logger) (*Secured, error) {
	audit, err := access.OpenAudit(s.AuditLog, roles == identity.Gateway, log)
	if err != nil {
		return nil, badConfig(err, "--audit-log: cannot write %s", s.AuditLog)
	}
	secured := &Secured{Audit: audit, log: log, cluster: cluster, lines: transport.RejectedLines()}
	secured.Transport, err = transport.Open(transport.Config{
		Cluster: cluster, Cert: s.TLSCert, Key: s.TLSKey, CA: s.TLSCA, Mode: transport.Mode(s.TLSMode), Roles: roles,
		Log: log, Rejected: func(listener, peer, reason string) {
			secured.connections.Add(1)
			audit.Rejected(listener, peer, reason)
		},
	})
	if err != nil {
		secured.Close()
		return nil, err
	}
	if secured.Transport != nil && secured.Plain() {
		log.Warn("connections in plain text are accepted, and their callers have every role: set --tls-mode to require once all processes use TLS",
			"mode", s.TLSMode)
	}
	return secured, nil
}

// Secure does the same as Security.Secure, and opens the access file and the certificates
// for etcd.
func (c Common) Secure(roles identity.Role, log *slog.Logger) (*Secured, error) {
	s, err := c.Security.Secure(c.Cluster, roles, log)
	if err != nil {
		return nil, err
	}
	if s.Access, err = access.Open(c.Access, c.Cluster, log); err == nil {
		s.etcd, err = transport.Open(transport.Config{Cert: c.EtcdCert, Key: c.EtcdKey, CA: c.EtcdCA, Options: "--etcd",
			Log: log})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the files.
func (s *Secured) Close() {
	s.Transport.Close()
	s.etcd.Close()
	s.Access.Close()
	for _, stop := range s.stop {
		stop()
	}
	if err := s.Audit.Close(); err != nil {
		s.log.Warn("cannot close the audit log", "error", err)
	}
}

// Guard returns the guard of a listener.
func (s *Secured) Guard(at access.Listener) *access.Guard {
	return &access.Guard{Listener: at, Cluster: s.cluster, Access: s.Access, Audit: s.Audit, Log: s.log,
		Lines: s.lines, Rejected: &s.calls}
}

// Metrics emits the number of rejected calls and connections, and the end of the validity of
// the certificate.
func (s *Secured) Metrics(f Scrape) {
	f.Counter("berth_access_rejected_calls_total",
		"Calls that were rejected because of the role or the identity of the caller.",
		uint64(s.calls.Load()))
	f.Counter("berth_access_rejected_connections_total", "Connections that were rejected during the TLS handshake.",
		uint64(s.connections.Load()))
	if expires := s.Expires(); !expires.IsZero() {
		f.Gauge("berth_certificate_expiry_seconds", "End of the validity of the certificate, in seconds since 1970.",
			float64(expires.Unix()))
	}
}

// handshakeTimeout bounds the TLS handshake and the HTTP/2 preface of a connection.
const handshakeTimeout = 20 * time.Second

// ServerOptions returns the options of a gRPC server on a listener of the process.
func (s *Secured) ServerOptions(at access.Listener) []grpc.ServerOption {
	return append(s.Guard(at).ServerOptions(), grpc.Creds(transport.Credentials()),
		grpc.ConnectionTimeout(handshakeTimeout))
}

// Operations returns a server for the requests of operators and load balancers. Every caller
// may check the health; the other requests require a role.
func (s *Secured) Operations(handler http.Handler) *http.Server {
	server := HTTPServer(s.Guard(access.Operations).HTTP(handler, func(w http.ResponseWriter, err error) {
		f := rpc.FromStatus(err)
		writeJSON(w, rpc.HTTPStatus(f.Kind), map[string]string{"message": f.Message})
	}))
	transport.ServeHTTP(server)
	return server
}

// EtcdConfig says how to reach etcd. Its fields are those of store.DialConfig; agents contain
// this package and not the client of etcd.
type EtcdConfig struct {
	Endpoints          []string
	TLS                *tls.Config
	Username, Password string
	// CurrentPassword, if set, returns the content of the file of the password, which may change.
	CurrentPassword func() string
	// PasswordProblem, if set, returns why the file of the password cannot be used now, or "". The
	// password stays the last valid one.
	PasswordProblem func() string
}

// Etcd returns how to reach etcd. The configuration must be the one of Secure, which follows the file
// of the password until Close. The error names
// an option that would have no effect, or that would let a secret cross the network in plain
// text.
func (s *Secured) Etcd(c Common) (EtcdConfig, error) {
	config := EtcdConfig{Endpoints: c.Etcd, Username: c.EtcdUser}
	for _, endpoint := range c.Etcd {
		if err := c.checkEndpoint(endpoint); err != nil {
			return config, err
		}
		if PlainEtcd(endpoint) {
			s.log.Warn("calling etcd beyond loopback without TLS", "endpoint", endpoint)
		}
	}
	switch {
	case s.etcd != nil:
		config.TLS = s.etcd.External(c.Etcd...)
	case s.Transport != nil:
		config.TLS = s.External(c.Etcd...)
		if slices.ContainsFunc(c.Etcd, func(e string) bool { return strings.HasPrefix(e, "https://") }) {
			s.log.Warn("etcd gets the certificate of this process, and is trusted because of --tls-ca; an etcd that trusts the same authorities accepts the certificate of every agent: set --etcd-ca, --etcd-cert and --etcd-key")
		}
	default:
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := c.checkLogin(); err != nil {
		return config, err
	}
	if c.EtcdPasswordFile != "" {
		password, err := s.secret("the password for etcd", "--etcd-password-file", c.EtcdPasswordFile)
		if err != nil {
			return config, err
		}
		config.Password, config.CurrentPassword = password(), password
		config.PasswordProblem = func() string {
			if _, err := readSecret("--etcd-password-file", c.EtcdPasswordFile); err != nil {
				return err.Error()
			}
			return ""
		}
	}
	return config, nil
}

// checkLogin returns an error if one of the options for the login at etcd is missing.
func (c Common) checkLogin() error {
	if (c.EtcdUser == "") != (c.EtcdPasswordFile == "") {
		return badCombination("--etcd-user", "--etcd-user and --etcd-password-file must be set together")
	}
	return nil
}

// badCombination returns an error about an option whose value is valid, but not together with the
// values of other options. The message names the option itself.
func badCombination(option, format string, args ...any) *fault.Error {
	f := badConfig(nil, format, args...).With(fault.MetaCombination, "true")
	f.Fields = []fault.Field{{Name: option, Problem: f.Message}}
	return f
}

// checkEndpoint checks the options for one endpoint of etcd. Beyond loopback, calls in plain
// text need Insecure.
func (c Common) checkEndpoint(endpoint string) error {
	if strings.HasPrefix(endpoint, "https://") {
		return nil
	}
	for _, o := range []struct{ option, value string }{
		{"--etcd-cert", c.EtcdCert}, {"--etcd-key", c.EtcdKey}, {"--etcd-ca", c.EtcdCA},
	} {
		if o.value != "" {
			return badCombination(o.option, "%s has no effect, because --etcd-endpoints %s has no TLS: use https://", o.option, endpoint)
		}
	}
	password := c.EtcdUser != "" || c.EtcdPasswordFile != ""
	switch {
	case !PlainEtcd(endpoint), c.Insecure:
		return nil
	case password:
		return badCombination("--etcd-endpoints", "--etcd-user and --etcd-password-file would be sent in plain text to --etcd-endpoints %s: use https:// or add --insecure",
			endpoint)
	}
	return badCombination("--etcd-endpoints", "--etcd-endpoints %s is beyond loopback and has no TLS: use https:// or add --insecure", endpoint)
}

// PlainEtcd reports whether calls to an endpoint of etcd cross the network in plain text.
func PlainEtcd(endpoint string) bool {
	host := strings.TrimPrefix(endpoint, "http://")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return !strings.HasPrefix(endpoint, "https://") && !strings.HasPrefix(endpoint, "unix://") && !rpc.Loopback(host)
}
