package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// bearers records the bearer token of each call.
type bearers struct {
	mu   sync.Mutex
	list []string
}

func (b *bearers) add(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, md.Get("authorization")...)
}

func (b *bearers) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if info.FullMethod == healthpb.Health_Check_FullMethodName {
		return handler(ctx, request)
	}
	b.add(ctx)
	return &berthv1.Reservation{State: berthv1.Reservation_ACTIVE}, nil
}

func (b *bearers) stream(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
	b.add(stream.Context())
	return stream.SendMsg(&berthv1.Event{Cursor: "1"})
}

// secure runs a gateway with TLS that records bearer tokens.
func secure(t *testing.T) (g *gateway, called *bearers, trust *tls.Config) {
	t.Helper()
	generated := httptest.NewTLSServer(nil)
	defer generated.Close()
	trust = &tls.Config{RootCAs: x509.NewCertPool()}
	trust.RootCAs.AddCert(generated.Certificate())
	g, called = &gateway{}, &bearers{}
	g.more = []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&generated.TLS.Certificates[0])),
		grpc.UnaryInterceptor(called.unary), grpc.StreamInterceptor(called.stream)}
	g.serve(t, "127.0.0.1:0")
	return g, called, trust
}

func TestATokenIsSentWithEveryCall(t *testing.T) {
	g, called, trust := secure(t)
	n := 0
	c, err := Dial([]string{g.address}, WithTLS(trust), WithToken(func(context.Context) (string, error) {
		n++
		return fmt.Sprintf("token-%d", n), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if _, err := c.Get(t.Context(), Key{Job: "a", Stage: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range c.Events(t.Context(), "a", "") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if want := []string{"Bearer token-1", "Bearer token-2", "Bearer token-3"}; !slices.Equal(called.list, want) {
		t.Errorf("the gateway received %q, want %q", called.list, want)
	}
}

func TestATokenIsNotSentInPlainText(t *testing.T) {
	c, err := Dial([]string{"127.0.0.1:1"}, WithToken(func(context.Context) (string, error) { return "secret", nil }))
	if err == nil {
		c.Close()
		t.Fatal("Dial accepts a token without TLS")
	}
	if fault.Of(err).Kind != fault.Invalid || !strings.Contains(err.Error(), "a bearer token is sent only with TLS") {
		t.Errorf("the error is %v", err)
	}
}

// TestACallWithoutATokenIsNotSent checks that a source without a valid token ends the call.
func TestACallWithoutATokenIsNotSent(t *testing.T) {
	g, called, trust := secure(t)
	for _, c := range []struct {
		token string
		err   error
		want  string
	}{
		{"", errors.New("the provider is down"), "cannot get the bearer token: the provider is down"},
		{"", nil, "the bearer token is empty"},
		{"two words", nil, "the bearer token contains a space"},
		{"line\n", nil, "the bearer token contains a space"},
	} {
		client, err := Dial([]string{g.address}, WithTLS(trust),
			WithToken(func(context.Context) (string, error) { return c.token, c.err }))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Get(t.Context(), Key{Job: "a", Stage: "b"})
		if fault.Of(err).Kind != fault.Denied || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%q, %v: the error is %v, want %q", c.token, c.err, err, c.want)
		}
		client.Close()
	}
	if len(called.list) > 0 {
		t.Errorf("the gateway received calls with %q", called.list)
	}
}

// TestTLSOfOnlyOneSideIsNamed checks the errors of a client that uses TLS at a gateway
// without TLS, and the other way round.
func TestTLSOfOnlyOneSideIsNamed(t *testing.T) {
	encrypted, _, trust := secure(t)
	open := &gateway{}
	open.serve(t, "127.0.0.1:0")
	for _, c := range []struct {
		address string
		trust   *tls.Config
		want    string
	}{
		{encrypted.address, nil, "the gateway closed the connection: it may require TLS"},
		{open.address, trust, "the gateway answers in plain text, and the client calls with TLS"},
		{encrypted.address, &tls.Config{RootCAs: x509.NewCertPool()},
			"the TLS handshake with the gateway failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		client, err := Dial([]string{c.address}, WithTLS(c.trust), WithOnRetry(func(error) { cancel() }))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Get(ctx, Key{Job: "a", Stage: "b"})
		client.Close()
		if !strings.Contains(fmt.Sprint(err), c.want) || fault.Of(err).Kind != fault.Unavailable {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
}

// TestARejectedCertificateIsNamed checks the error of a gateway that requires a certificate
// of the client.
func TestARejectedCertificateIsNamed(t *testing.T) {
	for _, message := range []string{
		`connection error: desc = "error reading server preface: remote error: tls: certificate required"`,
		`connection error: desc = "transport: authentication handshake failed: remote error: tls: certificate required"`,
	} {
		f := (&Client{encrypted: true}).faultOf(rpc.ToStatus(fault.New(fault.Unavailable, "", "%s", message)))
		if !strings.HasPrefix(f.Message, "the TLS handshake with the gateway failed: ") ||
			!strings.HasSuffix(f.Message, "tls: certificate required") {
			t.Errorf("%s becomes %s", message, f.Message)
		}
	}
	const refused = "the gateway refused the certificate of the client: "
	for message, want := range map[string]string{
		`connection error: desc = "error reading server preface: remote error: tls: expired certificate"`: refused + "expired or not valid yet",
		`connection error: desc = "error reading server preface: remote error: tls: bad certificate"`:     refused + "bad certificate",
		`connection error: desc = "transport: authentication handshake failed: remote error: tls: unknown certificate authority"`: refused +
			"unknown certificate authority",
	} {
		f := (&Client{encrypted: true}).faultOf(rpc.ToStatus(fault.New(fault.Unavailable, "", "%s", message)))
		if f.Message != want {
			t.Errorf("%s becomes %s", message, f.Message)
		}
	}
}

// TestAClosedConnectionIsNamed checks each error of gRPC for a connection in plain text that
// the gateway closes at once. An established connection that ends is another error.
func TestAClosedConnectionIsNamed(t *testing.T) {
	const named = "the gateway closed the connection: it may require TLS"
	for message, want := range map[string]bool{
		`connection error: desc = "error reading server preface: EOF"`:                                                                 true,
		`connection error: desc = "error reading server preface: read tcp 1.2.3.4:5->1.2.3.4:6: read: connection reset by peer"`:       true,
		`connection error: desc = "transport: failed to write initial settings frame: write tcp [::1]:5->[::1]:6: write: broken pipe"`: true,
		`write tcp 127.0.0.1:37436->127.0.0.1:33711: write: broken pipe`:                                                               true,
		`error reading from server: EOF`: false,
		`error reading from server: read tcp 1.2.3.4:5->1.2.3.4:6: read: connection reset by peer`:                   false,
		`connection error: desc = "transport: Error while dialing: dial tcp 1.2.3.4:6: connect: connection refused"`: false,
	} {
		f := (&Client{}).faultOf(rpc.ToStatus(fault.New(fault.Unavailable, "", "%s", message)))
		if (f.Message == named) != want {
			t.Errorf("%s becomes %s", message, f.Message)
		}
	}
}
