// Package security has the options of a job service for clusters with TLS.
package security

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"strings"

	"berth.dev/client"
)

var (
	tlsCA     = flag.String("tls-ca", "", "file (PEM) of the gateways' certificate authorities; with TLS, default those of this host")
	tlsCert   = flag.String("tls-cert", "", "certificate file (PEM) that proves the role of this job service")
	tlsKey    = flag.String("tls-key", "", "key file (PEM) of the certificate")
	tokenFile = flag.String("token-file", "", "file with a bearer token that proves the role of this job service")
)

// Options returns the options for a cluster with TLS, and none for one in plain text. The client
// reads the certificate for each connection and the token for each call, so that renewed files
// apply without a restart.
func Options() ([]client.Option, error) {
	if *tlsCA == "" && *tlsCert == "" && *tokenFile == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if *tlsCA != "" {
		text, err := os.ReadFile(*tlsCA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("-tls-ca: %s contains no certificate", *tlsCA)
		}
	}
	if *tlsCert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(*tlsCert, *tlsKey)
			return &pair, err
		}
	}
	options := []client.Option{client.WithTLS(config)}
	if *tokenFile != "" {
		options = append(options, client.WithToken(func(context.Context) (string, error) {
			text, err := os.ReadFile(*tokenFile)
			return strings.TrimSpace(string(text)), err
		}))
	}
	return options, nil
}
