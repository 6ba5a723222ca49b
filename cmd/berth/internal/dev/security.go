package dev

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/transport"
)

const (
	// defaultCluster is the cluster of `berth dev`.
	defaultCluster = "default"
	// everyAgent is the name of the certificate of all agents of `berth dev`, which share a
	// process.
	everyAgent = "*"
	// admin is the name of the operator for whom `berth dev --tls` issues a certificate.
	admin = "admin"
	// valid is how long the certificates of `berth dev --tls` are valid. Each start issues
	// new certificates.
	valid = 90 * 24 * time.Hour
	// authorityValid is how long the authorities are valid.
	authorityValid = 10 * 365 * 24 * time.Hour
)

// loopback has the host names of the gateway's and of etcd's certificates.
var loopback = []string{"localhost", "127.0.0.1", "::1"}

// security has the certificates of `berth dev --tls`. The zero value is for plain text.
type security struct {
	dir  string
	etcd embedded.Security
}

// issue issues the certificates in the directory certs of a data directory. It uses the
// authorities of an earlier start. The paths are absolute, because other terminals use them.
func issue(dataDir string) (s security, err error) {
	if s.dir, err = filepath.Abs(filepath.Join(dataDir, "certs")); err != nil {
		return s, err
	}
	authority, err := openOrInit(s.dir)
	if err != nil {
		return s, err
	}
	for _, id := range []identity.Identity{
		{Cluster: defaultCluster, Role: identity.Gateway, Name: model.ServiceGateway},
		{Cluster: defaultCluster, Role: identity.Service, Name: model.ServiceRegistry},
		{Cluster: defaultCluster, Role: identity.Service, Name: model.ServiceExecutorState},
		{Cluster: defaultCluster, Role: identity.Service, Name: model.ServiceAssigner},
		{Cluster: defaultCluster, Role: identity.Agent, Name: everyAgent},
		{Cluster: defaultCluster, Role: identity.Operator, Name: admin},
	} {
		if _, err := authority.Issue(id, loopback, valid); err != nil {
			return s, err
		}
	}
	// etcd trusts an authority of its own. Otherwise every agent's certificate would open it.
	own := filepath.Join(s.dir, "etcd")
	if authority, err = openOrInit(own); err != nil {
		return s, err
	}
	server, err := authority.Issue(identity.Identity{Cluster: defaultCluster, Role: identity.Service, Name: "etcd"},
		loopback, valid)
	if err != nil {
		return s, err
	}
	client, err := authority.Issue(identity.Identity{Cluster: defaultCluster, Role: identity.Service, Name: "berth"}, nil,
		valid)
	s.etcd = embedded.Security{Cert: server.Cert, Key: server.Key, CA: server.CA, ClientCert: client.Cert,
		ClientKey: client.Key}
	return s, err
}

func openOrInit(dir string) (*certs.Authority, error) {
	authority, err := certs.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return certs.Init(dir, authorityValid)
	}
	return authority, err
}

// of returns the security of a part.
func (s security) of(role identity.Role, name string) process.Security {
	if s.dir == "" {
		return process.Security{}
	}
	files := certs.FilesOf(s.dir, role, name)
	return process.Security{TLSCert: files.Cert, TLSKey: files.Key, TLSCA: files.CA}
}

// client returns the configuration of calls of the operator; nil in plain text.
func (s security) client() (*tls.Config, error) {
	files := s.of(identity.Operator, admin)
	return transport.ClientConfig(files.TLSCert, files.TLSKey, files.TLSCA)
}

func (s security) url(address string) string {
	if s.dir == "" {
		return "http://" + address
	}
	return "https://" + address
}

// exports returns the commands that let the command line find the gateway.
func (s security) exports(gateway string) string {
	if s.dir == "" {
		return fmt.Sprintf("  export BERTH_GATEWAY=%s\n", gateway)
	}
	files := s.of(identity.Operator, admin)
	return fmt.Sprintf("  export BERTH_GATEWAY=%s\n  export BERTH_TLS_CERT=%s BERTH_TLS_KEY=%s BERTH_TLS_CA=%s\n",
		s.url(gateway), quoted(files.TLSCert), quoted(files.TLSKey), quoted(files.TLSCA))
}

// curl returns the options of curl, with a space at the end.
func (s security) curl() string {
	if s.dir == "" {
		return ""
	}
	return `--cacert "$BERTH_TLS_CA" --cert "$BERTH_TLS_CERT" --key "$BERTH_TLS_KEY" `
}

// agentFlags returns the options that a further agent needs, with a space at the begin.
func (s security) agentFlags() string {
	if s.dir == "" {
		return ""
	}
	files := s.of(identity.Agent, everyAgent)
	return fmt.Sprintf(" --tls-cert %s --tls-key %s --tls-ca %s", quoted(files.TLSCert), quoted(files.TLSKey),
		quoted(files.TLSCA))
}

// special matches text that a shell does not read as one word.
var special = regexp.MustCompile(`[^\w@%+=:,./-]`)

// quoted returns the name of a file as one word of a shell.
func quoted(name string) string {
	if !special.MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
