package fleet

import (
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

const (
	// Cluster is the cluster of a fleet.
	Cluster = "default"
	// valid is how long the certificates of a fleet are valid. It is longer than the time
	// below which processes warn.
	valid = 30 * 24 * time.Hour
	// authorityValid is how long the authorities are valid.
	authorityValid = 365 * 24 * time.Hour
	// ownOperator is the name in the certificate of the fleet's own client.
	ownOperator = "fleet"
)

// security issues and finds the certificates of a fleet.
type security struct {
	dir, etcdDir string
	hosts        []string // of all certificates
	// etcd has the files of etcd; the zero value if etcd serves plain text.
	etcd embedded.Security

	mu     sync.Mutex
	mode   transport.Mode                 // "" for plain text
	issued map[identity.Identity][]string // with the hosts
	own    *transport.Transport           // of the fleet's own client
}

// CertsDir returns the directory of the authority and of the certificates, in which they
// have the names of certs.FilesOf.
func (f *Fleet) CertsDir() string { return f.security.dir }

// SetTLS sets the value of --tls-mode that processes get at their next start. An empty mode
// means plain text. Running processes do not change. Calls of the fleet's own new client are
// encrypted unless the mode is empty or Allow; clients that Client returned before stay as
// they are. etcd serves TLS only if the fleet started with TLS.
func (f *Fleet) SetTLS(mode transport.Mode) error {
	if err := f.security.set(mode); err != nil {
		return err
	}
	if f.client == nil {
		return nil // the fleet starts
	}
	return f.dial()
}

// dial creates the fleet's own client.
func (f *Fleet) dial() error {
	var err error
	if f.client, err = client.Dial(f.Gateways(), client.WithTLS(f.ClientTLS(identity.Gateway))); err == nil {
		f.clients = append(f.clients, f.client)
	}
	return err
}

// ClientTLS returns the configuration of calls of an operator to processes with one of the
// roles; nil in plain text. It follows rotations, and checks the role of the process that
// answers instead of its host.
func (f *Fleet) ClientTLS(roles identity.Role) *tls.Config {
	f.security.mu.Lock()
	defer f.security.mu.Unlock()
	if f.security.mode == "" || f.security.mode == transport.Allow {
		return nil
	}
	return f.security.own.Client(roles)
}

// EtcdConfig returns how to reach members of etcd, by default all of them.
func (f *Fleet) EtcdConfig(endpoints ...string) (store.DialConfig, error) {
	config := store.DialConfig{Endpoints: endpoints}
	if len(endpoints) == 0 {
		config.Endpoints = f.Etcd()
	}
	s := f.security.etcd
	if s.Cert == "" {
		return config, nil
	}
	var err error
	config.TLS, err = transport.ClientConfig(s.ClientCert, s.ClientKey, s.CA)
	return config, err
}

// Issue issues a certificate for an identity, which Rotate replaces too. The fleet must have
// TLS.
func (f *Fleet) Issue(role identity.Role, name string) (certs.Files, error) {
	f.security.mu.Lock()
	defer f.security.mu.Unlock()
	return f.security.issue(role, name)
}

// Rotate issues all certificates again, except those of etcd. It uses the authority whose key
// is in CertsDir.
func (f *Fleet) Rotate() error {
	f.security.mu.Lock()
	defer f.security.mu.Unlock()
	authority, err := certs.Open(f.security.dir)
	if err != nil {
		return err
	}
	for id, hosts := range f.security.issued {
		if _, err := authority.Issue(id, hosts, valid); err != nil {
			return err
		}
	}
	return nil
}

// set sets the mode. The first mode that is not empty creates the authority and the
// certificate of the fleet's own client.
func (s *security) set(mode transport.Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
	if mode == "" || s.own != nil {
		return nil
	}
	if _, err := certs.Init(s.dir, authorityValid); err != nil {
		return err
	}
	own, err := s.issue(identity.Operator, ownOperator)
	if err != nil {
		return err
	}
	s.own, err = transport.Open(transport.Config{Cert: own.Cert, Key: own.Key, CA: own.CA, Roles: identity.Operator,
		Log: slog.New(slog.DiscardHandler)})
	return err
}

// initEtcd issues the certificates of etcd, which has an authority of its own: otherwise
// every agent's certificate would open it.
func (s *security) initEtcd(hosts ...string) error {
	authority, err := certs.Init(s.etcdDir, authorityValid)
	if err != nil {
		return err
	}
	server, err := authority.Issue(identity.Identity{Cluster: Cluster, Role: identity.Service, Name: "etcd"},
		slices.Concat(s.hosts, hosts), valid)
	if err != nil {
		return err
	}
	own, err := authority.Issue(identity.Identity{Cluster: Cluster, Role: identity.Service, Name: "berth"}, nil, valid)
	s.etcd = embedded.Security{Cert: server.Cert, Key: server.Key, CA: server.CA, ClientCert: own.Cert, ClientKey: own.Key}
	return err
}

// issue issues the certificate of an identity. The caller holds the lock.
func (s *security) issue(role identity.Role, name string, hosts ...string) (certs.Files, error) {
	id, err := identity.New(Cluster, role, name)
	if err != nil {
		return certs.Files{}, err
	}
	authority, err := certs.Open(s.dir)
	if err != nil {
		return certs.Files{}, err
	}
	s.issued[id] = slices.Concat(s.hosts, hosts)
	return authority.Issue(id, s.issued[id], valid)
}

// flags returns the flags of a process with an identity on a host, which is empty for
// loopback. It issues the certificate of the identity if necessary.
func (s *security) flags(id identity.Identity, host string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	if s.mode != transport.Require && host != "" {
		list = append(list, "--insecure")
	}
	if s.mode == "" {
		return list, nil
	}
	files := certs.FilesOf(s.dir, id.Role, id.Name)
	if s.issued[id] == nil {
		var hosts []string
		if host != "" {
			hosts = append(hosts, host)
		}
		if _, err := s.issue(id.Role, id.Name, hosts...); err != nil {
			return nil, err
		}
	}
	list = append(list, "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA, "--tls-mode",
		string(s.mode))
	if s.etcd.Cert != "" && id.Role != identity.Agent {
		list = append(list, "--etcd-cert", s.etcd.ClientCert, "--etcd-key", s.etcd.ClientKey, "--etcd-ca", s.etcd.CA)
	}
	return list, nil
}

// scheme returns the prefix of the URLs of etcd's members.
func (s *security) scheme() string {
	if s.etcd.Cert == "" {
		return ""
	}
	return "https://"
}

// close ends the reads of the files.
func (s *security) close() { s.own.Close() }

// newSecurity returns the security of a fleet in a directory. hosts are in all certificates
// in addition to loopback.
func newSecurity(dir string, hosts []string) *security {
	dir = filepath.Join(dir, "certs")
	return &security{dir: dir, etcdDir: filepath.Join(dir, "etcd"), issued: map[identity.Identity][]string{},
		hosts: append([]string{"localhost", "127.0.0.1"}, hosts...)}
}
