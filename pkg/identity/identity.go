// Package identity names every caller of Berth by a cluster, a role and a name, and reads
// the identity from a certificate or a URI. An identity never grants anything by itself:
// package access has the table of what each role may do.
//
//	berth://{cluster}/{role}/{name}
package identity

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"berth.dev/pkg/model"
)

// Scheme is the scheme of the URI of an identity.
const Scheme = "berth"

// MaxName is the maximum length of a name or of a cluster in an identity, in bytes.
const MaxName = 128

// Role is the role of a caller, or a set of roles.
type Role uint8

// The roles.
const (
	// Job is a job service. Its name is a prefix of the names of its jobs, by the rule of
	// model.Covers.
	Job Role = 1 << iota
	// Agent is the agent of a host. Its name is the ID of its executor. A name that ends in
	// '*' stands for every executor whose ID begins with the rest. It is for programs that run
	// many agents in one process, such as `berth sim`.
	Agent
	// Autoscaler reads the usage and claims idle executors.
	Autoscaler
	// Viewer reads everything.
	Viewer
	// Operator does everything that the public API offers.
	Operator
	// Gateway is a gateway.
	Gateway
	// Service is a replica of the registry, of executor-state or of the assigner.
	Service

	// Nobody has no role. Everybody stands for all callers, also for callers without a role.
	Nobody    Role = 0
	Everybody Role = 1<<8 - 1
)

// Roles lists all roles in order.
var Roles = []Role{Job, Agent, Autoscaler, Viewer, Operator, Gateway, Service}

// names has the name of each role in the order of Roles.
var names = []string{"job", "agent", "autoscaler", "viewer", "operator", "gateway", "service"}

// ParseRole returns the role with a name.
func ParseRole(name string) (Role, error) {
	i := slices.Index(names, name)
	if i < 0 {
		return Nobody, fmt.Errorf("must be one of %s, got %q", strings.Join(names, ", "), name)
	}
	return Roles[i], nil
}

// String returns the names of the roles in a set.
func (r Role) String() string {
	switch r {
	case Nobody:
		return "nobody"
	case Everybody:
		return "everybody"
	}
	var list []string
	for i, role := range Roles {
		if r&role != 0 {
			list = append(list, names[i])
		}
	}
	if last := len(list) - 1; last > 0 {
		return strings.Join(list[:last], ", ") + " or " + list[last]
	}
	return list[0]
}

// Identity names a caller.
type Identity struct {
	Cluster string
	Role    Role
	Name    string
}

// New returns an identity. The error names the invalid part.
func New(cluster string, role Role, name string) (Identity, error) {
	plain := name
	if role == Agent {
		plain = cmp.Or(strings.TrimSuffix(name, "*"), strings.ReplaceAll(name, "*", "all"))
	}
	switch {
	case !model.ValidName(cluster, MaxName):
		return Identity{}, fmt.Errorf("cluster: must be a name of 1 to %d bytes, got %q", MaxName, cluster)
	case !slices.Contains(Roles, role):
		return Identity{}, fmt.Errorf("role: must be one of %s", strings.Join(names, ", "))
	case !model.ValidName(plain, MaxName):
		return Identity{}, fmt.Errorf("name: must be letters, digits, '.', '_' and '-', the first a letter or digit, "+
			"and 1 to %d bytes long, got %q", MaxName, name)
	}
	return Identity{cluster, role, name}, nil
}

// Parse returns the identity in a URI.
func Parse(uri string) (Identity, error) {
	rest, ok := strings.CutPrefix(uri, Scheme+"://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Identity{}, fmt.Errorf("the identity %q is not %s://CLUSTER/ROLE/NAME", uri, Scheme)
	}
	role, err := ParseRole(parts[1])
	if err != nil {
		return Identity{}, fmt.Errorf("the identity %q: role: %w", uri, err)
	}
	id, err := New(parts[0], role, parts[2])
	if err != nil {
		return Identity{}, fmt.Errorf("the identity %q: %w", uri, err)
	}
	return id, nil
}

// Of returns the identity in a certificate, which must have exactly one URI with Berth's
// scheme. The URI must be the one of Identity.URI; only the '*' of an agent's name may be
// unescaped.
func Of(certificate *x509.Certificate) (Identity, error) {
	var found []*url.URL
	for _, uri := range certificate.URIs {
		if uri.Scheme == Scheme {
			found = append(found, uri)
		}
	}
	if len(found) != 1 {
		return Identity{}, fmt.Errorf("the certificate of %q has %d identities of the form %s://CLUSTER/ROLE/NAME, want one",
			certificate.Subject.CommonName, len(found), Scheme)
	}
	uri := found[0]
	id, err := Parse(Scheme + "://" + uri.Host + uri.Path)
	if err != nil {
		return Identity{}, err
	}
	// Parse did not see a query, a user and so on, or how the path is escaped.
	escaped := *id.URI()
	plain := escaped
	plain.RawPath = plain.Path
	if *uri != escaped && *uri != plain {
		return Identity{}, fmt.Errorf("the identity %q is not written as %q", uri, id)
	}
	return id, nil
}

// String returns the URI of the identity.
func (id Identity) String() string {
	return Scheme + "://" + id.Cluster + "/" + id.Role.String() + "/" + id.Name
}

// URI returns the URI of the identity for a certificate.
func (id Identity) URI() *url.URL {
	return &url.URL{Scheme: Scheme, Host: id.Cluster, Path: "/" + id.Role.String() + "/" + id.Name}
}

// CoversJob reports whether an identity may act for a job. Only the role Job is limited to
// some jobs.
func (id Identity) CoversJob(job string) bool { return id.Role != Job || model.Covers(id.Name, job) }

// CoversExecutor reports whether an identity may act for an executor. Only the role Agent
// is limited to its own executor.
func (id Identity) CoversExecutor(executor string) bool {
	if id.Role != Agent {
		return true
	}
	prefix, many := strings.CutSuffix(id.Name, "*")
	return executor == id.Name || many && strings.HasPrefix(executor, prefix)
}
