package scenario

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/transport"
)

// While callers send requests, all certificates are issued again, and then the authority is
// replaced. No call fails, and no executor becomes UNREACHABLE or LOST.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{TLS: transport.Require, TTL: longest})
	w.startSim("sim", 10, 4)
	w.startAgents(fleet.Agent{ID: "host", SKU: "host", Slots: 4})
	w.awaitReady(11)
	a := &authority{world: w, dir: w.fleet.CertsDir()}

	ctx, stop := context.WithCancel(w.ctx)
	var callers sync.WaitGroup
	callers.Go(func() { w.callSteadily(ctx, "grpc", w.overGRPC) })
	callers.Go(func() { w.callSteadily(ctx, "rest", w.overREST()) })

	a.rotate()
	old := a.read(certs.AuthorityCert)
	next := a.init()
	a.trust(old, next.cert)
	a.awaitTrust(next.client, true)
	was := a.client("before")
	a.use(next, old)
	a.rotate()
	a.trust(next.cert)
	a.awaitTrust(was, false)

	// The new connections of the services, of the agents and of the probe use the new
	// certificates.
	for _, service := range fleet.Services {
		leader, term := w.leader(service)
		leader.Kill()
		w.nextLeader(service, leader, term)
		w.restart(leader)
	}
	w.awaitReady(11)
	stop()
	callers.Wait()
	w.quiesce()
	w.neverAbsent()
}

// neverAbsent checks that no executor was UNREACHABLE or LOST at any time.
func (w *world) neverAbsent() {
	w.Helper()
	w.neverLost()
	for _, c := range w.history() {
		if ref, ok := space.Parse(c.Key); ok && ref.Kind == model.KindLive && c.Deleted {
			w.Errorf("the presence of %s was deleted at revision %d", ref.ID, c.Mod)
		}
	}
}

// neverLost checks that no executor was LOST at any time.
func (w *world) neverLost() {
	w.Helper()
	for _, c := range w.history() {
		if e, ok := decode(w, c, model.KindExecutor).(*model.Executor); ok && e.Lost {
			w.Errorf("%s became LOST at revision %d", e.ID, c.Mod)
		}
	}
}

// authority changes the files of a fleet's authority, as an operator does.
type authority struct {
	*world
	dir string
}

// nextAuthority is an authority that replaces another one.
type nextAuthority struct {
	cert, key []byte
	// client is the configuration of a client with a certificate of the authority.
	client *tls.Config
}

func (a *authority) read(name string) []byte {
	a.Helper()
	text, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		a.Fatal(err)
	}
	return text
}

// write replaces a file at once.
func (a *authority) write(name string, text []byte) {
	a.Helper()
	part := filepath.Join(a.dir, name+".part")
	if err := os.WriteFile(part, text, 0o600); err != nil {
		a.Fatal(err)
	}
	if err := os.Rename(part, filepath.Join(a.dir, name)); err != nil {
		a.Fatal(err)
	}
}

// init creates another authority.
func (a *authority) init() nextAuthority {
	a.Helper()
	dir := a.TempDir()
	created, err := certs.Init(dir, time.Hour)
	if err != nil {
		a.Fatal(err)
	}
	files, err := created.Issue(identity.Identity{Cluster: fleet.Cluster, Role: identity.Operator, Name: "next"}, nil,
		time.Hour)
	if err != nil {
		a.Fatal(err)
	}
	files.CA = filepath.Join(a.dir, certs.AuthorityCert)
	other := &authority{a.world, dir}
	return nextAuthority{other.read(certs.AuthorityCert), other.read(certs.AuthorityKey), lenient(a.T, files)}
}

// client returns the configuration of a client with a certificate of the current authority.
func (a *authority) client(name string) *tls.Config {
	a.Helper()
	files, err := a.fleet.Issue(identity.Operator, name)
	if err != nil {
		a.Fatal(err)
	}
	return lenient(a.T, files)
}

// trust replaces the certificates of the authorities that all processes trust.
func (a *authority) trust(certificates ...[]byte) {
	a.Helper()
	a.write(certs.AuthorityCert, bytes.Join(certificates, nil))
}

// use makes an authority the one that issues certificates. Processes trust the old one too.
func (a *authority) use(next nextAuthority, old []byte) {
	a.Helper()
	a.trust(next.cert, old)
	a.write(certs.AuthorityKey, next.key)
}

// rotate issues all certificates again and waits until every port serves its new one.
func (a *authority) rotate() {
	a.Helper()
	if err := a.fleet.Rotate(); err != nil {
		a.Fatal(err)
	}
	issued := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(a.dir, "*.crt"))
	if err != nil {
		a.Fatal(err)
	}
	for _, file := range files {
		block, _ := pem.Decode(a.read(filepath.Base(file)))
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			a.Fatal(err)
		}
		issued[certificate.SerialNumber.String()] = true
	}
	for _, p := range a.ports() {
		until(a.T, func() string {
			c, err := tls.Dial("tcp", p.address, a.fleet.ClientTLS(identity.Gateway|identity.Service|identity.Agent))
			if err != nil {
				return fmt.Sprintf("%v: %v", p, err)
			}
			defer c.Close()
			if !issued[c.ConnectionState().PeerCertificates[0].SerialNumber.String()] {
				return fmt.Sprintf("%v serves its old certificate", p)
			}
			return ""
		})
	}
}

// awaitTrust waits until every port accepts a certificate, or until every port rejects it.
func (a *authority) awaitTrust(security *tls.Config, accepted bool) {
	a.Helper()
	for _, p := range a.ports() {
		until(a.T, func() string {
			if _, answered := a.send(p, security); answered != accepted {
				return fmt.Sprintf("%v accepts the certificate: %v, want %v", p, answered, accepted)
			}
			return ""
		})
	}
}
