package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"

	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
)

// serverKind is a kind of listener.
type serverKind struct {
	// public is true for a listener that callers may use without a certificate, with TLS 1.2
	// and with HTTP/1.
	public bool
}

// versions names the accepted versions of TLS.
func (k serverKind) versions() string {
	if k.public {
		return "1.2 or 1.3"
	}
	return "1.3"
}

func (t *Transport) server(m *material, kind serverKind) *tls.Config {
	config := &tls.Config{
		Certificates: []tls.Certificate{m.pair}, ClientCAs: m.authorities,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil // ClientAuth decides
			}
			_, err := t.own(state.PeerCertificates[0])
			return err
		},
	}
	if kind.public {
		// HTTP/1 is first, so that browsers, which offer both, use it; gRPC uses only HTTP/2.
		config.ClientAuth, config.MinVersion = tls.VerifyClientCertIfGiven, tls.VersionTLS12
		config.NextProtos = []string{"http/1.1", "h2"}
	}
	return config
}

// Listener returns a listener whose connections are encrypted as the mode says. name is the
// option with the address of the listener, for logs. On a public listener the certificate of
// a caller is optional. The handshake happens with the first read of a connection, so Accept
// never waits for a peer.
func (t *Transport) Listener(l net.Listener, name string, public bool) net.Listener {
	if t == nil {
		return l
	}
	return &listener{l, t, name, serverKind{public}}
}

type listener struct {
	net.Listener
	transport *Transport
	name      string
	kind      serverKind
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, listener: l}, nil
}

// Peer is the other end of a connection. It is the AuthInfo of gRPC connections.
type Peer struct {
	credentials.CommonAuthInfo
	// Encrypted is false for a connection in plain text, whose peer is unknown.
	Encrypted bool
	// Identity is the identity in the certificate; nil without a certificate.
	Identity *identity.Identity

	conn *conn // nil without TLS
}

// Unknown is the peer of a connection of an unknown kind. It has no identity and is not
// trusted.
var Unknown = Peer{Encrypted: true}

// maxRejected is the maximum number of calls of one connection that are rejected before
// their messages are read.
const maxRejected = 100

// CountRejected counts a call that was rejected before its messages were read. gRPC keeps the
// context of such a call until the connection ends, so CountRejected closes a connection with
// too many of them.
func (p Peer) CountRejected() {
	if p.conn != nil && p.conn.rejected.Add(1) > maxRejected {
		p.conn.Conn.Close()
	}
}

// AuthType implements credentials.AuthInfo.
func (Peer) AuthType() string { return "berth" }

// conn is a connection that is encrypted or in plain text.
type conn struct {
	net.Conn
	listener *listener

	rejected  atomic.Int32
	handshake sync.Mutex
	// open is nil before the handshake. It is the same connection in plain text.
	open atomic.Pointer[opened]
}

// opened is a connection after its handshake.
type opened struct {
	net.Conn
	peer Peer
	err  error
	// silent is true if the peer has sent nothing, like a probe of the port.
	silent bool
}

// recordHandshake is the type of a TLS record that begins a handshake.
const recordHandshake = 0x16

// finish completes the handshake and returns the connection to use.
func (c *conn) finish() *opened {
	if o := c.open.Load(); o != nil {
		return o
	}
	c.handshake.Lock()
	defer c.handshake.Unlock()
	if o := c.open.Load(); o != nil {
		return o
	}
	o := c.negotiate()
	if o.err != nil && !o.silent {
		c.listener.reject(c.RemoteAddr(), o.err)
	}
	c.open.Store(o)
	return o
}

// errPlain is the reason to reject a connection in plain text.
var errPlain = errors.New("the connection is in plain text; this listener requires TLS")

func (c *conn) negotiate() *opened {
	var first [1]byte
	if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
		return &opened{Conn: c.Conn, err: err, silent: true}
	}
	raw := &prefixed{Conn: c.Conn, prefix: first[:]}
	t := c.listener.transport
	if first[0] != recordHandshake {
		o := &opened{Conn: raw}
		if !t.Plain() {
			o.err = errPlain
			if c.listener.kind.public {
				c.answerPlain(first[0])
			}
		}
		return o
	}
	secured := tls.Server(raw, t.current.Load().servers[c.listener.kind])
	o := &opened{Conn: secured, peer: Peer{Encrypted: true, conn: c}}
	o.peer.SecurityLevel = credentials.PrivacyAndIntegrity
	if o.err = secured.Handshake(); o.err != nil {
		return o
	}
	if certificates := secured.ConnectionState().PeerCertificates; len(certificates) > 0 {
		id, err := t.own(certificates[0])
		o.peer.Identity, o.err = &id, err
	}
	return o
}

// plainAnswer is the answer to an HTTP/1 request in plain text.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
	`{"code":3,"message":"this port requires TLS: use https://"}` + "\n"

// answerPlain answers an HTTP/1 request that began with a byte. It reads the rest of the
// request first, because closing a connection with unread input discards the answer. gRPC
// gets no answer.
func (c *conn) answerPlain(first byte) {
	var rest [4 << 10]byte
	n, err := c.Conn.Read(rest[:])
	if err == nil && first >= 'A' && first <= 'Z' && !(first == 'P' && n > 1 && rest[0] == 'R') {
		io.WriteString(c.Conn, plainAnswer) //nolint:errcheck // the connection is closed anyway
	}
}

// prefixed is a connection whose first bytes were read already.
type prefixed struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		p.prefix = p.prefix[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	o := c.finish()
	if o.err != nil {
		return 0, o.err
	}
	return o.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	o := c.finish()
	if o.err != nil {
		return 0, o.err
	}
	return o.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if o := c.open.Load(); o != nil {
		return o.Close()
	}
	return c.Conn.Close()
}

// CloseWrite closes the writing side of the connection.
func (c *conn) CloseWrite() error {
	o := c.finish()
	below := o.Conn
	if p, plain := below.(*prefixed); plain {
		below = p.Conn
	}
	if half, ok := below.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// PeerOf completes the handshake of a connection and returns its peer. The connection is
// from a listener of a Transport or a plain connection of the operating system, or a wrapper
// around such a connection; a wrapper has the method NetConn. The peer of any other
// connection is Unknown.
func PeerOf(c net.Conn) (Peer, error) {
	for {
		switch wrapped := c.(type) {
		case *conn:
			o := wrapped.finish()
			return o.peer, o.err
		case interface{ NetConn() net.Conn }:
			c = wrapped.NetConn()
		case *net.TCPConn, *net.UnixConn:
			return Peer{}, nil
		default:
			return Unknown, nil
		}
	}
}

// reject logs a connection whose handshake failed.
func (l *listener) reject(peer net.Addr, err error) {
	t, why := l.transport, l.reason(err)
	if t.lines.Allow() {
		t.config.Log.Warn("rejected a connection", "listener", l.name, "peer", peer.String(), "reason", why)
	}
	if t.config.Rejected != nil {
		t.config.Rejected(l.name, peer.String(), why)
	}
}

// offeredOld is the prefix of the error of crypto/tls, which has no type.
const offeredOld = "tls: client offered only unsupported versions"

func (l *listener) reason(err error) string {
	if strings.HasPrefix(err.Error(), offeredOld) {
		return "the caller offers no version of TLS that this listener accepts: it requires TLS " + l.kind.versions()
	}
	return Reason(err)
}

// Reason describes why a handshake failed, for people.
func Reason(err error) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate of %q is not valid at this time: it is valid from %v to %v",
			invalid.Cert.Subject.CommonName, invalid.Cert.NotBefore.UTC(), invalid.Cert.NotAfter.UTC())
	case errors.As(err, &unknown):
		return "the certificate is not signed by an authority in --tls-ca"
	}
	if why := rpc.RefusedCertificate(err.Error()); why != "" {
		return "the other end refused the certificate of this process: " + why
	}
	return err.Error()
}

// RejectedLines returns a limiter for log lines about rejected connections or calls, which
// any peer can cause.
func RejectedLines() *rate.Limiter { return rate.NewLimiter(20, 20) }

// Credentials returns the credentials of a gRPC server whose connections come from a
// listener of a Transport. The AuthInfo of a call is a Peer.
func Credentials() credentials.TransportCredentials { return serverCredentials{} }

type serverCredentials struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (serverCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	peer, err := PeerOf(c)
	return c, peer, err
}

// ClientHandshake implements credentials.TransportCredentials.
func (serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are only for servers")
}

// Info implements credentials.TransportCredentials.
func (serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "berth"}
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (serverCredentials) OverrideServerName(string) error { return nil }

type peerKey struct{}

// ServeHTTP makes the peer of a connection available to the handlers of a server, which get
// it with PeerIn.
func ServeHTTP(server *http.Server) {
	before := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		return context.WithValue(ctx, peerKey{}, c)
	}
}

// PeerIn returns the peer of an HTTP request.
func PeerIn(ctx context.Context) Peer {
	c, ok := ctx.Value(peerKey{}).(net.Conn)
	if !ok {
		return Unknown
	}
	peer, _ := PeerOf(c) // the handshake has succeeded: the request arrived
	return peer
}
