package certs_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
)

func authority(t *testing.T, valid time.Duration) (a *certs.Authority, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	a, err := certs.Init(dir, valid)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

func issued(t *testing.T, a *certs.Authority, role identity.Role, name string, hosts ...string) (certs.Files,
	*x509.Certificate) {
	t.Helper()
	files, err := a.Issue(identity.Identity{Cluster: "prod", Role: role, Name: name}, hosts, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return files, pair.Leaf
}

// TestIssuedCertificatesVerify checks the certificates of all roles: the chain, the usage,
// the hosts and the identity.
func TestIssuedCertificatesVerify(t *testing.T) {
	a, dir := authority(t, 48*time.Hour)
	roots := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(dir, certs.AuthorityCert))
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	for _, role := range identity.Roles {
		files, leaf := issued(t, a, role, "one", "host.example.com", "10.0.0.7", "::1")
		serves := role&(identity.Gateway|identity.Service|identity.Agent) != 0
		for usage, want := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageClientAuth: true,
			x509.ExtKeyUsageServerAuth: serves} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
			if (err == nil) != want {
				t.Errorf("%v: usage %v: %v", role, usage, err)
			}
		}
		for _, host := range []string{"host.example.com", "10.0.0.7", "::1"} {
			if err := leaf.VerifyHostname(host); err != nil {
				t.Errorf("%v: %v", role, err)
			}
		}
		if id, err := identity.Of(leaf); err != nil || id != (identity.Identity{Cluster: "prod", Role: role, Name: "one"}) {
			t.Errorf("%v: the certificate is for %v: %v", role, id, err)
		}
		openssl(t, "verify", "-x509_strict", "-CAfile", files.CA, files.Cert)
	}
}

// openssl runs openssl if this host has it.
func openssl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		return
	}
	if out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput(); err != nil {
		t.Errorf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestOnlyTheOwnerCanReadKeys(t *testing.T) {
	a, dir := authority(t, time.Hour)
	files, _ := issued(t, a, identity.Viewer, "one")
	for _, key := range []string{files.Key, filepath.Join(dir, certs.AuthorityKey)} {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, info, err)
		}
	}
	for _, cert := range []string{files.Cert, files.CA} {
		if info, err := os.Stat(cert); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", cert, info, err)
		}
	}
}

func TestACertificateEndsWithItsAuthority(t *testing.T) {
	a, _ := authority(t, time.Hour)
	if _, leaf := issued(t, a, identity.Viewer, "one"); !leaf.NotAfter.Equal(a.Expires()) {
		t.Errorf("the certificate is valid until %v, and its authority until %v", leaf.NotAfter, a.Expires())
	}
	long, _ := authority(t, 48*time.Hour)
	if _, leaf := issued(t, long, identity.Viewer, "one"); !leaf.NotAfter.Before(long.Expires()) {
		t.Errorf("the certificate is valid until %v, as long as its authority", leaf.NotAfter)
	}
}

// TestInitReplacesNothing checks that Init fails if one of the authority's files exists.
func TestInitReplacesNothing(t *testing.T) {
	for _, left := range []string{certs.AuthorityCert, certs.AuthorityKey} {
		_, dir := authority(t, time.Hour)
		for _, name := range []string{certs.AuthorityCert, certs.AuthorityKey} {
			if name != left {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before, err := os.ReadFile(filepath.Join(dir, left))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := certs.Init(dir, time.Hour); err == nil || !strings.Contains(err.Error(), left+" already exists") {
			t.Errorf("with only %s: %v", left, err)
		}
		if after, err := os.ReadFile(filepath.Join(dir, left)); err != nil || !bytes.Equal(before, after) {
			t.Errorf("Init has replaced %s", left)
		}
	}
}

// TestIssueReplacesACertificate checks that the authority, opened anew, renews a
// certificate with a new key.
func TestIssueReplacesACertificate(t *testing.T) {
	first, dir := authority(t, time.Hour)
	_, before := issued(t, first, identity.Service, "registry-0")
	again, err := certs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, after := issued(t, again, identity.Service, "registry-0")
	if before.SerialNumber.Cmp(after.SerialNumber) == 0 ||
		before.PublicKey.(*ecdsa.PublicKey).Equal(after.PublicKey) {
		t.Error("the certificate is the same")
	}
	if files != certs.FilesOf(dir, identity.Service, "registry-0") {
		t.Errorf("the files are %+v", files)
	}
}

// TestFilesOf checks the names of the files, and that identities do not share files.
func TestFilesOf(t *testing.T) {
	seen := map[certs.Files]string{}
	for _, c := range []struct {
		role identity.Role
		name string
		want string
	}{
		{identity.Gateway, "gateway-0", "gateway-gateway-0.crt"},
		{identity.Agent, "*", "agent-+.crt"},
		{identity.Agent, "any", "agent-any.crt"},
		{identity.Agent, "sim-*", "agent-sim-+.crt"},
		{identity.Agent, "sim-any", "agent-sim-any.crt"},
	} {
		got := certs.FilesOf("d", c.role, c.name)
		if other, shared := seen[got]; shared {
			t.Errorf("%s and %s share %s", other, c.name, got.Cert)
		}
		seen[got] = c.name
		if got.Cert != filepath.Join("d", c.want) ||
			got.Key != strings.TrimSuffix(got.Cert, ".crt")+".key" || got.CA != filepath.Join("d", "ca.crt") {
			t.Errorf("%v %s: %+v", c.role, c.name, got)
		}
	}
}

// TestOpenNamesTheBadFile checks the errors of a missing and of a damaged authority.
func TestOpenNamesTheBadFile(t *testing.T) {
	if _, err := certs.Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without files: %v", err)
	}
	for _, name := range []string{certs.AuthorityCert, certs.AuthorityKey} {
		for _, text := range []string{"damaged", "-----BEGIN X-----\nAAAA\n-----END X-----\n"} {
			_, dir := authority(t, time.Hour)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := certs.Open(dir); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s is %q: %v", name, text, err)
			}
		}
	}
}
