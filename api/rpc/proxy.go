package rpc

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc/credentials"
)

// Proxy is an HTTP proxy through which a client connects to an address (CONNECT). The zero value
// connects directly.
type Proxy struct {
	// URL has the scheme http or https, and perhaps a user and a password. Without a port it is the
	// default port of the scheme.
	URL *url.URL
	// Source says where the URL is set, for errors: HTTPS_PROXY.
	Source string
}

// String returns the proxy for people, without its password: "the proxy http://proxy:3128 of
// HTTPS_PROXY".
func (p Proxy) String() string {
	return "the proxy " + (&url.URL{Scheme: p.URL.Scheme, Host: p.URL.Host}).String() + " of " + p.Source
}

// failed returns an error of a connection through the proxy.
func (p Proxy) failed(err error) error {
	// The error of a dial repeats the address of the proxy.
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		err = op.Err
	}
	return fmt.Errorf("through %v: %w", p, err)
}

// Dial connects to an address, host:port. The error names the proxy.
func (p Proxy) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if p.URL == nil {
		return d.DialContext(ctx, "tcp", address)
	}
	ports := map[string]string{"http": "80", "https": "443"}
	if ports[p.URL.Scheme] == "" {
		return nil, p.failed(fmt.Errorf("its scheme must be http or https, not %s", p.URL.Scheme))
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(p.URL.Hostname(), cmp.Or(p.URL.Port(), ports[p.URL.Scheme])))
	if err != nil {
		return nil, p.failed(err)
	}
	if p.URL.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: p.URL.Hostname(), MinVersion: tls.VersionTLS12})
	}
	// The deadline applies to the request and to the answer.
	expire := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // only a closed one fails
	made, err := p.connect(conn, address)
	if !expire() {
		err = fmt.Errorf("it does not answer: %w", ctx.Err())
	}
	if err != nil {
		conn.Close()
		return nil, p.failed(err)
	}
	return made, nil
}

// connect makes the proxy connect to an address.
func (p Proxy) connect(conn net.Conn, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address,
		Header: http.Header{"User-Agent": {"berth"}}}
	if user := p.URL.User; user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+
			base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	buffered := bufio.NewReader(conn)
	answer, err := http.ReadResponse(buffered, request)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it does not answer as an HTTP proxy: %w", err)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %s to CONNECT %s", answer.Status, address)
	}
	return tunnel{conn, buffered, p}, nil
}

// tunnel is a connection through a proxy.
type tunnel struct {
	net.Conn
	// buffered has what the server has sent after the answer of the proxy.
	buffered io.Reader
	proxy    Proxy
}

// Read implements net.Conn.
func (t tunnel) Read(b []byte) (int, error) { return t.buffered.Read(b) }

// RemoteAddr implements net.Conn.
func (t tunnel) RemoteAddr() net.Addr { return proxied{t.Conn.RemoteAddr(), t.proxy} }

// proxied is the address of a proxy, by which named finds the proxy.
type proxied struct {
	net.Addr
	proxy Proxy
}

// named names the proxy in the error of a TLS handshake: the proxy may have replaced the
// certificate of the server.
type named struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (n named) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo,
	error) {
	made, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if through, is := conn.RemoteAddr().(proxied); err != nil && is {
		err = through.proxy.failed(err)
	}
	return made, info, err
}

// Clone implements credentials.TransportCredentials.
func (n named) Clone() credentials.TransportCredentials { return named{n.TransportCredentials.Clone()} }
