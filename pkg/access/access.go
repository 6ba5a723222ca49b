// Package access decides which callers may call which methods. One table has the roles of
// every method on every listener. A call that the table does not allow has no effect: its
// caller gets PERMISSION_DENIED with the missing role, and the audit log gets a line.
//
//	certificate ─┐            ┌─ table ── role ───┐
//	bearer token ┴─▶ Caller ─▶┼─ own jobs ────────┼─▶ handler ─▶ audit log
//	gateway's metadata ─┘     └─ rate of tenant ──┘
//
// Callers of a listener without TLS have every role of the listener.
package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"berth.dev/api/fault"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/reload"
	"berth.dev/pkg/yamlfile"
)

// The limits of an access file.
const (
	maxTokens  = 10_000
	maxIssuers = 10
	maxGrants  = 1000
	maxTenants = 1000
	maxNames   = 100 // of SKUs, and of pools, in a tenant's limits
)

// file is the content of an access file, in YAML.
type file struct {
	Tokens  []token  `yaml:"tokens"`
	Issuers []issuer `yaml:"issuers"`
	Tenants []tenant `yaml:"tenants"`
}

// token grants a role to the holder of a bearer token.
type token struct {
	Role string `yaml:"role"`
	Name string `yaml:"name"`
	// SHA256 is the SHA-256 hash of the token, in hexadecimal. A token must be random and
	// have at least 128 bits: its hash could be guessed otherwise.
	SHA256 string `yaml:"sha256"`
}

// issuer is an OpenID Connect provider whose ID tokens are bearer tokens.
type issuer struct {
	Issuer   string  `yaml:"issuer"`
	Audience string  `yaml:"audience"`
	CA       string  `yaml:"ca"`
	Grants   []grant `yaml:"grants"`
}

// grant grants a role to the tokens whose claim has a value. The claim is a string or a list
// of strings. The claim email matches only if the claim email_verified is true, because an
// issuer may let its users enter any email. The first grant that matches counts.
type grant struct {
	Claim string `yaml:"claim"`
	Value string `yaml:"value"`
	Role  string `yaml:"role"`
	// Name is the name of the identity, by default the claim sub as nameOf encodes it.
	Name string `yaml:"name"`
}

type tenant struct {
	Name   string `yaml:"name"`
	Prefix string `yaml:"prefix"`
	Limits limits `yaml:"limits"`
}

type limits struct {
	QueuedReservations int      `yaml:"queuedReservations"`
	Workers            int      `yaml:"workers"`
	Batch              int      `yaml:"batch"`
	StoredBytes        int64    `yaml:"storedBytes"`
	EventStreams       int      `yaml:"eventStreams"`
	RequestsPerSecond  float64  `yaml:"requestsPerSecond"`
	HighestPriority    string   `yaml:"highestPriority"`
	SKUs               []string `yaml:"skus"`
	Pools              []string `yaml:"pools"`
}

// policy is a valid access file.
type policy struct {
	tokens  map[[sha256.Size]byte]identity.Identity
	issuers []*provider
	tenants *model.Tenants
	rates   map[string]*rate // by tenant
}

// Access is the content of an access file, which it reloads when the file changes. A nil
// *Access has no tokens and no tenants.
type Access struct {
	name, cluster string
	log           *slog.Logger
	current       atomic.Pointer[policy]
	stop          func()
}

// Open reads an access file. It returns nil if name is empty. The error names the invalid
// field.
func Open(name, cluster string, log *slog.Logger) (*Access, error) {
	if name == "" {
		return nil, nil
	}
	a := &Access{name: name, cluster: cluster, log: log}
	var err error
	a.stop, err = reload.Watch(log, "the access file", []string{name}, func(contents [][]byte) error {
		return a.use(contents[0])
	})
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "--access %s: %v", name, err)
	}
	return a, nil
}

// Close ends the reads of the file.
func (a *Access) Close() {
	if a != nil {
		a.stop()
	}
}

// Tenants returns the tenants in the file.
func (a *Access) Tenants() *model.Tenants {
	if a == nil {
		return nil
	}
	return a.current.Load().tenants
}

// CheckFile returns the mistakes in an access file that are visible without the files and the
// issuers that it names. The error says why it cannot be read.
func CheckFile(name string) ([]yamlfile.Problem, error) {
	text, err := yamlfile.Read(name)
	if err != nil {
		return nil, err
	}
	_, _, problems := parse(name, anyCluster, text)
	return problems, nil
}

// anyCluster is the cluster of the identities in a file that is only checked.
const anyCluster = "default"

// parse returns the entries of an access file, and the policy without issuers and rates. If the
// file has mistakes, it returns only these.
func parse(name, cluster string, text []byte) (*file, *policy, []yamlfile.Problem) {
	var f file
	isEmpty, problems := yamlfile.Decode(name, "tokens, issuers and tenants", text, &f)
	if isEmpty {
		// An editor may truncate the file before it writes it.
		problems = append(problems, yamlfile.Problem{File: name,
			Text: "the file is empty: write {} if it should have no entries"})
	}
	if len(problems) > 0 {
		return nil, nil, problems
	}
	lineOf := yamlfile.Lines(text)
	add := func(err error) {
		if err == nil {
			return
		}
		p := yamlfile.Problem{File: name, Text: err.Error()}
		if field, problem, named := strings.Cut(p.Text, ": "); named {
			p.Line, p.Field, p.Text = lineOf(field), field, problem
		}
		problems = append(problems, p)
	}
	for _, l := range []struct {
		field     string
		have, max int
	}{
		{"tokens", len(f.Tokens), maxTokens}, {"issuers", len(f.Issuers), maxIssuers},
		{"tenants", len(f.Tenants), maxTenants},
	} {
		if l.have > l.max {
			add(fmt.Errorf("%s: must be at most %d, got %d", l.field, l.max, l.have))
		}
	}
	p := &policy{tokens: map[[sha256.Size]byte]identity.Identity{}}
	for i, one := range f.Tokens {
		if err := p.addToken(one, cluster); err != nil {
			add(fmt.Errorf("tokens[%d].%w", i, err))
		}
	}
	for i, one := range f.Issuers {
		earlier := func(o issuer) bool { return o.Issuer == one.Issuer }
		if err := one.check(cluster); err != nil {
			add(fmt.Errorf("issuers[%d].%w", i, err))
		} else if slices.ContainsFunc(f.Issuers[:i], earlier) {
			add(fmt.Errorf("issuers[%d].issuer: an earlier entry has the issuer %q; put all grants into one entry", i, one.Issuer))
		}
	}
	p.addTenants(f.Tenants, add)
	return &f, p, problems
}

// maxShown is the number of problems that an error about a file shows.
const maxShown = 10

// use replaces the policy. If the text is invalid, it changes nothing.
func (a *Access) use(text []byte) error {
	f, p, problems := parse(a.name, a.cluster, text)
	if len(problems) > 0 {
		errs := make([]string, len(problems))
		for i, p := range problems {
			if p.Line == 0 {
				p.File = "" // the error of Open names the file
			}
			errs[i] = p.Error()
		}
		if more := len(errs) - maxShown; more > 0 {
			errs = append(errs[:maxShown], fmt.Sprintf("and %d more problems", more))
		}
		return errors.New(strings.Join(errs, "; "))
	}
	before := cmp.Or(a.current.Load(), &policy{})
	for i, one := range f.Issuers {
		if _, err := authorities(one.CA); err != nil {
			return fmt.Errorf("issuers[%d].%w", i, err)
		}
		// The earlier provider of the same entry has the keys of the issuer.
		if same := slices.IndexFunc(before.issuers, func(o *provider) bool {
			return reflect.DeepEqual(o.issuer, one)
		}); same >= 0 {
			p.issuers = append(p.issuers, before.issuers[same])
		} else {
			p.issuers = append(p.issuers, newProvider(one, a.cluster, a.log))
		}
	}
	p.rates = map[string]*rate{}
	for _, t := range p.tenants.All() {
		if before.rates[t.Name] != nil && before.rates[t.Name].perSecond == t.Limits.RequestsPerSecond {
			p.rates[t.Name] = before.rates[t.Name]
		} else if t.Limits.RequestsPerSecond > 0 {
			p.rates[t.Name] = newRate(t.Limits.RequestsPerSecond)
		}
	}
	a.current.Store(p)
	return nil
}

func (p *policy) addToken(one token, cluster string) error {
	id, err := granted(cluster, one.Role, one.Name)
	if err != nil {
		return err
	}
	hash, err := hex.DecodeString(one.SHA256)
	if err != nil || len(hash) != sha256.Size {
		return fmt.Errorf("sha256: must be the SHA-256 hash of the token, %d hexadecimal digits", 2*sha256.Size)
	}
	key := [sha256.Size]byte(hash)
	if key == sha256.Sum256(nil) || key == sha256.Sum256([]byte("\n")) {
		return errors.New("sha256: is the hash of an empty text; hash the token")
	}
	if _, twice := p.tokens[key]; twice {
		return errors.New("sha256: an earlier entry has the same hash")
	}
	p.tokens[key] = id
	return nil
}

// granted returns the identity that an entry grants. Only certificates can prove the roles
// of Berth's own processes.
func granted(cluster, role, name string) (identity.Identity, error) {
	parsed, err := identity.ParseRole(role)
	switch {
	case err != nil:
		return identity.Identity{}, fmt.Errorf("role: must be one of %v, got %q", job|autoscaler|viewer|operator, role)
	case parsed&(agent|gateway|service) != 0:
		return identity.Identity{}, fmt.Errorf("role: only a certificate can prove the role %v", parsed)
	}
	return identity.New(cluster, parsed, name)
}

func (p *policy) addTenants(tenants []tenant, wrong func(error)) {
	var list []model.Tenant
	for i, t := range tenants {
		one, err := t.check(list)
		if err != nil {
			wrong(fmt.Errorf("tenants[%d].%w", i, err))
		}
		list = append(list, one)
	}
	p.tenants = model.NewTenants(list)
}

// check returns a tenant that differs from the earlier ones.
func (t tenant) check(earlier []model.Tenant) (model.Tenant, error) {
	limits, err := t.Limits.check()
	one := model.Tenant{Name: t.Name, Prefix: cmp.Or(t.Prefix, t.Name), Limits: limits}
	switch {
	case !model.ValidName(one.Name, identity.MaxName):
		return one, fmt.Errorf("name: must be a name of 1 to %d bytes, got %q", identity.MaxName, one.Name)
	case !model.ValidName(one.Prefix, identity.MaxName):
		return one, fmt.Errorf("prefix: must be the prefix of a name, got %q", one.Prefix)
	case slices.ContainsFunc(earlier, func(o model.Tenant) bool { return o.Name == one.Name }):
		return one, fmt.Errorf("name: an earlier tenant has the name %q", one.Name)
	case slices.ContainsFunc(earlier, func(o model.Tenant) bool { return o.Prefix == one.Prefix }):
		return one, fmt.Errorf("prefix: an earlier tenant has the prefix %q", one.Prefix)
	case err != nil:
		return one, fmt.Errorf("limits.%w", err)
	}
	return one, nil
}

// classes has the classes that highestPriority may name, the highest first.
var classes = []model.Class{model.ClassReplace, model.ClassScale, model.ClassNewJob}

func (l limits) check() (model.TenantLimits, error) {
	for _, n := range []struct {
		field string
		value float64
	}{
		{"queuedReservations", float64(l.QueuedReservations)}, {"workers", float64(l.Workers)}, {"batch", float64(l.Batch)},
		{"storedBytes", float64(l.StoredBytes)}, {"eventStreams", float64(l.EventStreams)},
		{"requestsPerSecond", l.RequestsPerSecond},
	} {
		if !(n.value >= 0 && n.value <= 1<<50) {
			return model.TenantLimits{}, fmt.Errorf("%s: must be between 0 and %d, got %v", n.field, int64(1<<50), n.value)
		}
	}
	if len(l.SKUs) > maxNames || len(l.Pools) > maxNames {
		return model.TenantLimits{}, fmt.Errorf("skus and pools: must be at most %d names each", maxNames)
	}
	for field, names := range map[string][]string{"skus": l.SKUs, "pools": l.Pools} {
		if slices.Contains(names, "") {
			return model.TenantLimits{}, fmt.Errorf("%s: must be names, got an empty one", field)
		}
	}
	class := model.ClassUnset
	if l.HighestPriority != "" {
		i := slices.IndexFunc(classes, func(c model.Class) bool { return c.String() == l.HighestPriority })
		if i < 0 {
			return model.TenantLimits{}, fmt.Errorf("highestPriority: must be one of %v, got %q", classes, l.HighestPriority)
		}
		class = classes[i]
	}
	return model.TenantLimits{
		QueuedReservations: l.QueuedReservations, Workers: l.Workers, Batch: l.Batch, StoredBytes: l.StoredBytes,
		EventStreams: l.EventStreams, RequestsPerSecond: l.RequestsPerSecond, HighestPriority: class,
		SKUs: l.SKUs, Pools: l.Pools,
	}, nil
}

// maxToken is the maximum length of a bearer token, in bytes.
const maxToken = 16 << 10

// token returns the identity that a bearer token proves.
func (a *Access) token(ctx context.Context, bearer string) (identity.Identity, error) {
	if a == nil {
		return identity.Identity{}, denied("this process accepts no bearer tokens: it has no --access file")
	}
	p := a.current.Load()
	if len(bearer) <= maxToken {
		if id, found := p.tokens[sha256.Sum256([]byte(bearer))]; found {
			return id, nil
		}
		if strings.Count(bearer, ".") == 2 {
			for _, one := range p.issuers {
				if id, matches, err := one.verify(ctx, bearer); matches || err != nil {
					return id, err
				}
			}
		}
	}
	return identity.Identity{}, denied("the bearer token is unknown")
}

func denied(format string, args ...any) *fault.Error {
	return fault.New(fault.Denied, fault.ReasonPermissionDenied, format, args...)
}
