// Package transport encrypts the connections of a process and proves the identity of both
// ends, or leaves all of them in plain text. It reloads the certificate, the key and the
// authorities of the process when their files change; connections that exist stay open.
//
//	Listener ─▶ connections of callers: an identity, or none where that is allowed
//	Client   ─▶ configuration of calls: the other end must have one of the expected roles
package transport

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"berth.dev/api/fault"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/reload"
)

// Mode says which connections a process encrypts. The modes and their names are those of
// MongoDB's tlsMode, because they solve the same problem: to encrypt the connections of a
// running cluster step by step.
type Mode string

// The modes.
const (
	// Require accepts and makes only encrypted connections. It is the default.
	Require Mode = "require"
	// Prefer makes encrypted connections, and accepts connections in plain text too.
	Prefer Mode = "prefer"
	// Allow makes connections in plain text, and accepts encrypted connections too.
	Allow Mode = "allow"
)

// modes lists the modes.
var modes = []Mode{Require, Prefer, Allow}

// Config configures a Transport.
type Config struct {
	// Cluster is the cluster to which all identities must belong. The default is the cluster
	// of the process's own certificate.
	Cluster string
	// Cert, Key and CA are PEM files: the certificate of this process with its key, and the
	// authorities that sign the certificates of peers. Either all are set or none.
	Cert, Key, CA string
	// Options is the prefix of the names of the options in errors, "--tls" by default.
	Options string
	// Mode is Require by default.
	Mode Mode
	// Roles are the roles that the certificate may have. With Nobody the certificate needs no
	// identity; it is for calls to other software, and Cert and Key may be empty.
	Roles identity.Role
	Log   *slog.Logger
	// Rejected, if set, is called for each rejected connection.
	Rejected func(listener, peer, reason string)
}

// Transport has the certificates of a process. A nil *Transport is valid: its connections
// are in plain text.
type Transport struct {
	config  Config
	current atomic.Pointer[material]
	stop    []func()
	lines   *rate.Limiter
}

// material is the content of the files of a process.
type material struct {
	pair        tls.Certificate
	authorities *x509.CertPool
	id          identity.Identity
	// servers has the configuration of each kind of listener.
	servers map[serverKind]*tls.Config
}

// Check returns an error if options are missing or invalid. It reads no file.
func (c Config) Check() error {
	_, _, err := c.files()
	return err
}

// files returns the files to read and the names of the options that set them; no files if the
// connections are in plain text.
func (c Config) files() (files, options []string, err error) {
	prefix := cmp.Or(c.Options, "--tls")
	files = []string{c.Cert, c.Key, c.CA}
	options = []string{prefix + "-cert", prefix + "-key", prefix + "-ca"}
	switch missing := slices.Index(files, ""); {
	case c.Cert == "" && c.Key == "" && c.CA == "" && c.Mode == "":
		return nil, options, nil
	case c.Cert == "" && c.Key == "" && c.CA == "":
		return nil, options, fault.BadField(fault.ReasonInvalid, "--tls-mode", "has no effect without %s", options[0]).
			With(fault.MetaCombination, "true")
	case c.Roles == identity.Nobody && c.Cert == "" && c.Key == "":
		files = files[2:]
	case missing >= 0:
		return nil, options, fault.BadField(fault.ReasonRequired, options[missing], "is required: set %s together",
			strings.Join(options, ", ")).With(fault.MetaCombination, "true")
	}
	if mode := cmp.Or(c.Mode, Require); !slices.Contains(modes, mode) {
		return nil, options, fault.BadField(fault.ReasonInvalid, "--tls-mode", "must be require, prefer or allow, got %q", mode)
	}
	return files, options, nil
}

// Open reads the files. It returns nil without files. The error names the option.
func Open(config Config) (*Transport, error) {
	files, options, err := config.files()
	if err != nil || files == nil {
		return nil, err
	}
	config.Options, config.Mode = cmp.Or(config.Options, "--tls"), cmp.Or(config.Mode, Require)
	t := &Transport{config: config, lines: RejectedLines()}
	stop, err := reload.Watch(config.Log, "the certificate", files, t.use)
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "cannot use %s: %v", strings.Join(options, ", "), err)
	}
	t.stop = []func(){stop, reload.Every(remindEvery, t.remind)}
	return t, nil
}

// Close ends the reads of the files.
func (t *Transport) Close() {
	if t != nil {
		for _, stop := range t.stop {
			stop()
		}
	}
}

// use replaces the material by the contents of the files. If a content is invalid, it
// changes nothing.
func (t *Transport) use(contents [][]byte) error {
	m := &material{servers: map[serverKind]*tls.Config{}, authorities: x509.NewCertPool()}
	if !m.authorities.AppendCertsFromPEM(contents[len(contents)-1]) {
		return fmt.Errorf("%s contains no certificate", t.config.CA)
	}
	if len(contents) == 1 {
		t.current.Store(m)
		return nil
	}
	var err error
	if m.pair, err = tls.X509KeyPair(contents[0], contents[1]); err != nil {
		return fmt.Errorf("%s and %s: %w", t.config.Cert, t.config.Key, err)
	}
	if t.config.Roles != identity.Nobody {
		if m.id, err = identity.Of(m.pair.Leaf); err != nil {
			return fmt.Errorf("%s: %w", t.config.Cert, err)
		}
		if t.config.Cluster == "" {
			t.config.Cluster = m.id.Cluster // only in Open, before other goroutines read it
		}
	}
	if err := t.usable(m); err != nil {
		return fmt.Errorf("%s: %w", t.config.Cert, err)
	}
	switch {
	case m.id.Cluster != t.config.Cluster:
		return fmt.Errorf("%s is for the cluster %q, and this process belongs to %q", t.config.Cert, m.id.Cluster,
			t.config.Cluster)
	case m.id.Role&t.config.Roles != m.id.Role:
		return fmt.Errorf("%s has the role %v, and this process needs the role %v", t.config.Cert, m.id.Role,
			t.config.Roles)
	}
	for _, kind := range []serverKind{{}, {public: true}} {
		m.servers[kind] = t.server(m, kind)
	}
	t.current.Store(m)
	t.remind()
	return nil
}

// clockSkew is the time by which the clocks of hosts may differ. It is the customary bound of
// Kerberos (RFC 4120), and the time before its creation from which package certs makes a
// certificate valid.
const clockSkew = 5 * time.Minute

// outside says on which side of its validity a certificate is; "" if it is valid now, or becomes valid
// within a time.
func outside(leaf *x509.Certificate, within time.Duration) string {
	switch now := time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("expired at %v", leaf.NotAfter.UTC())
	case now.Add(within).Before(leaf.NotBefore):
		return fmt.Sprintf("is not valid before %v", leaf.NotBefore.UTC())
	}
	return ""
}

// usable returns an error if other processes would reject the certificate, because it has
// expired, is not valid yet or their authorities have not signed it. A certificate that becomes
// valid within clockSkew is usable, because the clocks of hosts differ.
func (t *Transport) usable(m *material) error {
	leaf, now := m.pair.Leaf, time.Now()
	if problem := outside(leaf, clockSkew); problem != "" {
		return fmt.Errorf("the certificate %s", problem)
	}
	if t.config.Roles == identity.Nobody {
		return nil // the other software has authorities of its own
	}
	if now.Before(leaf.NotBefore) {
		now = leaf.NotBefore
	}
	chain, err := x509.ParseCertificates(bytes.Join(m.pair.Certificate, nil))
	if err != nil {
		return err
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: m.authorities, Intermediates: intermediates(chain), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return fmt.Errorf("no authority in %s has signed the certificate: %w", t.config.CA, err)
	}
	return nil
}

const (
	// expiresSoon is the remaining life of a certificate below which Berth warns.
	expiresSoon = 7 * 24 * time.Hour
	// remindEvery is the interval of the warnings.
	remindEvery = 6 * time.Hour
)

// remind logs that the certificate expires soon, has expired or is not valid yet.
func (t *Transport) remind() {
	leaf := t.current.Load().pair.Leaf
	switch {
	case leaf == nil: // only authorities
	case time.Now().After(leaf.NotAfter):
		t.config.Log.Error("the certificate has expired", "file", t.config.Cert, "expired", leaf.NotAfter)
	case time.Now().Before(leaf.NotBefore):
		t.config.Log.Error("the certificate is not valid yet", "file", t.config.Cert, "begins", leaf.NotBefore)
	case time.Until(leaf.NotAfter) < expiresSoon:
		t.config.Log.Warn("the certificate expires soon", "file", t.config.Cert, "expires", leaf.NotAfter)
	}
}

// Expired returns an error if the certificate has expired or is not valid yet: other processes
// then refuse new connections.
func (t *Transport) Expired() error {
	if t == nil {
		return nil
	}
	leaf := t.current.Load().pair.Leaf
	if leaf == nil {
		return nil
	}
	problem := outside(leaf, 0)
	if problem == "" {
		return nil
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable,
		"the certificate in %s %s; replace it, it is read again", t.config.Cert, problem)
}

// Serves reports whether the certificate is for a host name.
func (t *Transport) Serves(host string) bool {
	return t != nil && t.current.Load().pair.Leaf.VerifyHostname(host) == nil
}

// Expires returns the end of the validity of the certificate; the zero time without a
// certificate.
func (t *Transport) Expires() time.Time {
	if t == nil || t.current.Load().pair.Leaf == nil {
		return time.Time{}
	}
	return t.current.Load().pair.Leaf.NotAfter
}

// Identity returns the identity of this process; nil without a certificate.
func (t *Transport) Identity() *identity.Identity {
	if t == nil || t.config.Roles == identity.Nobody {
		return nil
	}
	return &t.current.Load().id
}

// Plain reports whether listeners accept connections in plain text.
func (t *Transport) Plain() bool { return t == nil || t.config.Mode != Require }

// Client returns the configuration of calls to processes with one of the roles; nil if calls
// are in plain text. It checks the identity of the process that answers instead of its host
// name: any process with the role may answer.
func (t *Transport) Client(roles identity.Role) *tls.Config {
	if t == nil || t.config.Mode == Allow {
		return nil
	}
	config := t.unchecked()
	config.MinVersion = tls.VersionTLS13
	// VerifyConnection does the verification, because the authorities change.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		id, err := t.verify(state, x509.ExtKeyUsageServerAuth)
		if err == nil && id.Role&roles == 0 {
			err = fmt.Errorf("the process that answers has the role %v, want %v", id.Role, roles)
		}
		return err
	}
	return config
}

// External returns the configuration of calls to other software, such as etcd. The
// certificate of a server must be for the host of one of the addresses, which are host:port
// or URLs. It may use TLS 1.2. External returns nil without a certificate.
func (t *Transport) External(addresses ...string) *tls.Config {
	if t == nil {
		return nil
	}
	var hosts []string
	for _, address := range addresses {
		if _, rest, found := strings.Cut(address, "://"); found {
			address, _, _ = strings.Cut(rest, "/")
		}
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
		hosts = append(hosts, address)
	}
	config := t.unchecked()
	config.MinVersion = tls.VersionTLS12
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) (err error) {
		// The state does not have the name of a server that is called by its address.
		for _, host := range hosts {
			if _, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
				DNSName: host, Roots: t.current.Load().authorities, Intermediates: intermediates(state.PeerCertificates),
			}); err == nil {
				return nil
			}
		}
		return cmp.Or(err, errNoHost)
	}
	return config
}

var errNoHost = errors.New("no host is configured")

func (t *Transport) unchecked() *tls.Config {
	return &tls.Config{
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &t.current.Load().pair, nil
		},
	}
}

// verify checks the certificate of the other end and returns its identity.
func (t *Transport) verify(state tls.ConnectionState, usage x509.ExtKeyUsage) (identity.Identity, error) {
	if len(state.PeerCertificates) == 0 {
		return identity.Identity{}, fmt.Errorf("no certificate")
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: t.current.Load().authorities, Intermediates: intermediates(state.PeerCertificates),
		KeyUsages: []x509.ExtKeyUsage{usage},
	}); err != nil {
		return identity.Identity{}, err
	}
	return t.own(leaf)
}

// own returns the identity in a certificate, which must belong to the cluster.
func (t *Transport) own(leaf *x509.Certificate) (identity.Identity, error) {
	id, err := identity.Of(leaf)
	if err == nil && id.Cluster != t.config.Cluster {
		err = fmt.Errorf("the certificate of %v is for another cluster, want %q", id, t.config.Cluster)
	}
	return id, err
}

// intermediates returns the certificates of a chain except the leaf.
func intermediates(chain []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		pool.AddCert(certificate)
	}
	return pool
}
