package rpc_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
)

// beyond returns an address at which a server on loopback is reached, and which no client takes for
// loopback: clients use no proxy for loopback, whatever the environment says.
func beyond(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("0.0.0.0", port)
}

// A client ignores the proxy of the environment, and so do its probes: processes reach each other
// directly.
func TestTheProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	p := serve(t, "", rpc.ServerOptions{}, named("direct"))
	for _, silence := range []time.Duration{0, 50 * time.Millisecond} {
		client := dial(t, rpc.DialOptions{Silence: silence}, beyond(t, p.addr))
		if got, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{}); err != nil ||
			got.GetId() != "direct" {
			t.Errorf("silence %v: %v, %v", silence, got, err)
		}
	}
}

// connecting is an HTTP proxy that answers CONNECT, and rejects requests without its password. It
// records the addresses to which it connects.
type connecting struct {
	*httptest.Server
	seen chan string
}

const secret = "s3cret"

func startProxy(t *testing.T) *connecting {
	t.Helper()
	p := &connecting{seen: make(chan string, 100)}
	var copies sync.WaitGroup
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+secret)) {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		p.seen <- r.Method + " " + r.Host
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(from, "HTTP/1.1 200 Connection established\r\n\r\n")
		for _, pair := range [][2]net.Conn{{to, from}, {from, to}} {
			copies.Go(func() {
				defer pair[0].Close()
				_, _ = io.Copy(pair[0], pair[1]) // until one of them closes
			})
		}
	}))
	p.Start()
	t.Cleanup(func() { p.Close(); copies.Wait() })
	return p
}

// A client with a proxy makes all connections through it, and so do its probes.
func TestClientsUseTheirProxy(t *testing.T) {
	p, through := serve(t, "", rpc.ServerOptions{}, named("behind")), startProxy(t)
	of := func(string) rpc.Proxy {
		return rpc.Proxy{URL: &url.URL{Scheme: "http", Host: through.Listener.Addr().String(),
			User: url.UserPassword("me", secret)}, Source: "TEST"}
	}
	for _, silence := range []time.Duration{0, 50 * time.Millisecond} {
		client := dial(t, rpc.DialOptions{Silence: silence, Proxy: of}, p.addr)
		if got, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{}); err != nil ||
			got.GetId() != "behind" {
			t.Errorf("silence %v: %v, %v", silence, got, err)
		}
	}
	for range 3 { // the probes connect after the first call
		if request := <-through.seen; request != "CONNECT "+p.addr {
			t.Errorf("the proxy got %q", request)
		}
	}
}

// The error of a call names the proxy, without its password, and says what the proxy did.
func TestErrorsNameTheProxy(t *testing.T) {
	through, plain := startProxy(t), serve(t, "", rpc.ServerOptions{}, named("plain"))
	nobody, proxy := hold(t), through.Listener.Addr().String()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	me := url.UserPassword("me", secret)
	for _, c := range []struct {
		name string
		url  url.URL
		to   string
		tls  *tls.Config
		want string
	}{
		{"nobody listens", url.URL{Scheme: "http", Host: nobody}, plain.addr, nil,
			"through the proxy http://" + nobody + " of TEST: connect: connection refused"},
		{"password", url.URL{Scheme: "http", Host: proxy, User: url.UserPassword("me", "wrong")}, plain.addr, nil,
			"through the proxy http://" + proxy + " of TEST: it answers 407 Proxy Authentication Required to CONNECT " + plain.addr},
		{"no server", url.URL{Scheme: "http", Host: proxy, User: me}, nobody, nil,
			"through the proxy http://" + proxy + " of TEST: it answers 502 Bad Gateway to CONNECT " + nobody},
		{"TLS", url.URL{Scheme: "http", Host: proxy, User: me}, plain.addr, &tls.Config{MinVersion: tls.VersionTLS12},
			"through the proxy http://" + proxy + " of TEST: "},
		{"scheme", url.URL{Scheme: "socks5", Host: proxy}, plain.addr, nil,
			"through the proxy socks5://" + proxy + " of TEST: its scheme must be http or https, not socks5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := dial(t, rpc.DialOptions{FailFast: true, TLS: c.tls, Proxy: func(string) rpc.Proxy {
				return rpc.Proxy{URL: &c.url, Source: "TEST"}
			}}, c.to)
			_, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	// A proxy that does not answer costs no more than the time of the caller.
	ctx := within(t, 50*time.Millisecond)
	_, err = rpc.Proxy{URL: &url.URL{Scheme: "http", Host: silent.Addr().String()}, Source: "TEST"}.Dial(ctx, plain.addr)
	if err == nil || !strings.Contains(err.Error(), "of TEST") || ctx.Err() == nil {
		t.Errorf("a silent proxy: %v", err)
	}
}
