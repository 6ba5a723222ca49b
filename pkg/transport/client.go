package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"berth.dev/api/fault"
	"berth.dev/pkg/identity"
)

// ClientConfig returns the configuration of a command that calls servers by the host names
// in their certificates. cert and key may be empty together; without ca the authorities of
// the host count. It returns nil if all are empty.
func ClientConfig(cert, key, ca string) (*tls.Config, error) {
	if cert == "" && key == "" && ca == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if (cert == "") != (key == "") {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "--tls-cert and --tls-key must be set together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "cannot use --tls-cert and --tls-key: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "cannot use --tls-ca: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fault.BadField(fault.ReasonInvalid, "--tls-ca", "%s contains no certificate", ca)
		}
	}
	return config, nil
}

// RenewedClientConfig is ClientConfig for a process that may run for long: it reads the certificate again
// for each connection, and so takes the one that replaces it.
func RenewedClientConfig(cert, key, ca string) (*tls.Config, error) {
	config, err := ClientConfig(cert, key, ca)
	if err != nil || cert == "" {
		return config, err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&config.Certificates[0])
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if next, err := tls.LoadX509KeyPair(cert, key); err == nil {
			last.Store(&next) // else the files are being replaced
		}
		return last.Load(), nil
	}
	return config, nil
}

// CheckValid returns an error if the certificate of a configuration of ClientConfig, from the file of
// --tls-cert, has expired or is not valid yet: every server refuses it. The clocks of hosts may differ by
// clockSkew.
func CheckValid(config *tls.Config, file string) error {
	if config == nil || len(config.Certificates) == 0 {
		return nil
	}
	problem := outside(config.Certificates[0].Leaf, clockSkew)
	if problem == "" {
		return nil
	}
	return fault.BadField(fault.ReasonInvalid, "--tls-cert",
		"the certificate in %s %s: replace it by one that is valid now, or correct the clock of this host", file, problem)
}

type executorsKey struct{}

// ToExecutors returns the context of a call that only the agent of the executors may
// receive.
func ToExecutors(ctx context.Context, executors ...string) context.Context {
	return context.WithValue(ctx, executorsKey{}, executors)
}

// CheckExecutors returns credentials that end a call of ToExecutors before it is sent, if
// the process at the other end is not the agent of the executors. Such a call fails with
// UNAUTHENTICATED. Calls in plain text are not checked.
func CheckExecutors() credentials.PerRPCCredentials { return executorCheck{} }

type executorCheck struct{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (executorCheck) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	secured, ok := info.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, nil
	}
	if len(secured.State.PeerCertificates) == 0 {
		return nil, errors.New("the agent has no certificate")
	}
	id, err := identity.Of(secured.State.PeerCertificates[0])
	if err != nil {
		return nil, err
	}
	executors, _ := ctx.Value(executorsKey{}).([]string)
	for _, executor := range executors {
		if id.Role != identity.Agent || !id.CoversExecutor(executor) {
			return nil, fmt.Errorf("the process that answers is %v, not the agent of the executor %q", id, executor)
		}
	}
	return nil, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (executorCheck) RequireTransportSecurity() bool { return false }
