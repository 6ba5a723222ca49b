// Package certs issues certificates whose identity Berth understands, for trials, tests and
// small clusters. Production clusters can use any authority that puts the same URI into its
// certificates.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth.dev/pkg/identity"
)

// The names of the authority's files in its directory.
const (
	AuthorityCert = "ca.crt"
	AuthorityKey  = "ca.key"
)

// backdate is how long before its creation a certificate is valid, so that hosts whose
// clocks are a little late accept the certificate.
const backdate = 5 * time.Minute

// Authority signs certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Init creates an authority that is valid for a time, and writes its certificate and its key
// to a directory, which it creates if necessary. It returns an error if the directory
// already has an authority.
func Init(dir string, valid time.Duration) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate("Berth certificate authority", valid)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.MaxPathLenZero = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := writePair(filepath.Join(dir, AuthorityCert), filepath.Join(dir, AuthorityKey), der, key, false); err != nil {
		return nil, err
	}
	return Open(dir)
}

// Open returns the authority of a directory.
func Open(dir string) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, AuthorityCert))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, AuthorityKey))
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("%s contains no certificate", AuthorityCert)
	}
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", AuthorityCert, err)
	}
	if block, _ = pem.Decode(keyPEM); block == nil {
		return nil, fmt.Errorf("%s contains no key", AuthorityKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", AuthorityKey, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s contains a key that cannot sign", AuthorityKey)
	}
	a.key = signer
	return a, nil
}

// Expires returns the end of the validity of the authority's certificate.
func (a *Authority) Expires() time.Time { return a.cert.NotAfter }

// Files are the files of a certificate, its key and the certificate of its authority.
type Files struct {
	Cert, Key, CA string
}

// FilesOf returns the files of an identity in a directory. Shells expand '*', so the names of
// the files have '+' instead, which no name of an identity has.
func FilesOf(dir string, role identity.Role, name string) Files {
	base := role.String() + "-" + strings.ReplaceAll(name, "*", "+")
	return Files{
		Cert: filepath.Join(dir, base+".crt"), Key: filepath.Join(dir, base+".key"), CA: filepath.Join(dir, AuthorityCert),
	}
}

// Issue issues a certificate for an identity that is valid for a time, and writes it with a
// new key to the directory of the authority. The certificate ends at the latest with the
// authority. It replaces an earlier certificate of the identity. hosts are the host names
// and addresses by which clients that check them call the process; processes of Berth check
// the identity of each other instead.
func (a *Authority) Issue(id identity.Identity, hosts []string, valid time.Duration) (Files, error) {
	return a.IssueFrom(id, hosts, time.Now().Add(-backdate), valid)
}

// IssueFrom does the same as Issue, for a certificate that is valid from a time on.
func (a *Authority) IssueFrom(id identity.Identity, hosts []string, from time.Time,
	valid time.Duration) (Files, error) {
	files := FilesOf(a.dir, id.Role, id.Name)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	template, err := newTemplate(id.Role.String()+"-"+id.Name, valid)
	if err != nil {
		return files, err
	}
	template.NotBefore = from
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if id.Role&(identity.Agent|identity.Gateway|identity.Service) != 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.URIs = append(template.URIs, id.URI())
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return files, err
	}
	return files, writePair(files.Cert, files.Key, der, key, true)
}

func newTemplate(name string, valid time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(valid),
	}, nil
}

// writePair writes a certificate and its key. It replaces existing files only if replace is
// true.
func writePair(cert, key string, der []byte, signer crypto.Signer, replace bool) error {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return err
	}
	if !replace {
		for _, name := range []string{cert, key} {
			if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(fmt.Errorf("%s already exists", name), err)
			}
		}
	}
	return errors.Join(
		write(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600),
		write(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
}

// write replaces a file atomically.
func write(name string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".certs-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
