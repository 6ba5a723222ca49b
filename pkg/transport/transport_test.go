package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "default"

// authority returns an authority in a new directory.
func authority(t *testing.T) (*certs.Authority, string) {
	t.Helper()
	dir := t.TempDir()
	a, err := certs.Init(dir, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

func issue(t *testing.T, a *certs.Authority, cluster string, role identity.Role, name string,
	valid time.Duration) certs.Files {
	t.Helper()
	id, err := identity.New(cluster, role, name)
	if err != nil {
		t.Fatal(err)
	}
	files, err := a.Issue(id, nil, valid)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// output is a log that goroutines may share.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func open(t *testing.T, files certs.Files, roles identity.Role, mode transport.Mode, log *output) *transport.Transport {
	t.Helper()
	tr, err := transport.Open(transport.Config{Cluster: cluster, Cert: files.Cert, Key: files.Key, CA: files.CA,
		Mode: mode, Roles: roles, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// server echoes one line on each connection and sends the peer of the connection to the
// channel.
func server(t *testing.T, tr *transport.Transport, public bool) (address string, peers chan transport.Peer) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := tr.Listener(raw, "--listen", public)
	peers = make(chan transport.Peer, 10)
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer c.Close()
				peer, err := transport.PeerOf(c)
				if err != nil {
					return
				}
				peers <- peer
				var line [5]byte
				if _, err := io.ReadFull(c, line[:]); err == nil {
					c.Write(line[:]) //nolint:errcheck // the client would fail
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); handlers.Wait() })
	return raw.Addr().String(), peers
}

// call sends a line and returns whether the answer arrived.
func call(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if config != nil {
		config = config.Clone()
		config.ServerName = "127.0.0.1"
		c = tls.Client(c, config)
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	var line [5]byte
	_, err = io.ReadFull(c, line[:])
	return err
}

func TestBothEndsAreIdentified(t *testing.T) {
	a, _ := authority(t)
	log := &output{}
	gateway := open(t, issue(t, a, cluster, identity.Gateway, "g", time.Hour), identity.Gateway, "", log)
	service := open(t, issue(t, a, cluster, identity.Service, "registry-0", time.Hour), identity.Service, "", log)
	address, peers := server(t, service, false)
	if err := call(t, address, gateway.Client(identity.Service)); err != nil {
		t.Fatal(err)
	}
	if p := <-peers; !p.Encrypted || p.Identity == nil || p.Identity.String() != "berth://default/gateway/g" {
		t.Errorf("peer %+v", p)
	}
	err := call(t, address, gateway.Client(identity.Agent))
	if err == nil || !strings.Contains(err.Error(), "has the role service, want agent") {
		t.Errorf("a call of a process with another role: %v", err)
	}
}

// Every connection without a valid certificate of the cluster is rejected with a log line
// that names the listener and the reason.
func TestOthersAreRejected(t *testing.T) {
	a, _ := authority(t)
	foreign, _ := authority(t)
	log := &output{}
	service := open(t, issue(t, a, cluster, identity.Service, "registry-0", time.Hour), identity.Service, "", log)
	address, _ := server(t, service, false)
	config := func(files certs.Files) *tls.Config {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	}
	nobody := &tls.Config{InsecureSkipVerify: true}
	old := config(issue(t, a, cluster, identity.Gateway, "g", time.Hour))
	old.MaxVersion, old.MinVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, c := range []struct {
		name   string
		config *tls.Config
		reason string
	}{
		{"plain text", nil, "the connection is in plain text; this listener requires TLS"},
		{"no certificate", nobody, "client didn't provide a certificate"},
		{"a foreign authority", config(issue(t, foreign, cluster, identity.Gateway, "g", time.Hour)),
			"the certificate is not signed by an authority in --tls-ca"},
		{"an expired certificate", config(issue(t, a, cluster, identity.Gateway, "late", -time.Minute)),
			"is not valid at this time"},
		{"another cluster", config(issue(t, a, "other", identity.Gateway, "g2", time.Hour)), "is for another cluster"},
		{"an old version of TLS", old, "it requires TLS 1.3"},
	} {
		before := len(log.String())
		if call(t, address, c.config) == nil {
			t.Errorf("%s: accepted", c.name)
		}
		await(t, func() bool { return strings.HasSuffix(log.String()[before:], "\n") }) // the client may know first
		line := log.String()[before:]
		if !strings.Contains(line, c.reason) || !strings.Contains(line, "listener=--listen") ||
			strings.Count(line, "\n") != 1 {
			t.Errorf("%s: log %q", c.name, line)
		}
	}
}

func TestCertificatesAreOptionalOnAPublicListener(t *testing.T) {
	a, _ := authority(t)
	gateway := open(t, issue(t, a, cluster, identity.Gateway, "g", time.Hour), identity.Gateway, "", &output{})
	address, peers := server(t, gateway, true)
	if err := call(t, address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err != nil {
		t.Fatal(err)
	}
	if p := <-peers; !p.Encrypted || p.Identity != nil {
		t.Errorf("peer %+v", p)
	}
}

// An HTTP/1 request in plain text gets a hint on a public listener.
func TestPlainHTTPGetsAHint(t *testing.T) {
	a, _ := authority(t)
	gateway := open(t, issue(t, a, cluster, identity.Gateway, "g", time.Hour), identity.Gateway, "", &output{})
	address, _ := server(t, gateway, true)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") ||
		!strings.Contains(string(answer), "use https://") {
		t.Errorf("%q, %v", answer, err)
	}
}

// The modes allow and prefer accept both kinds of connections; only prefer makes encrypted
// ones.
func TestModes(t *testing.T) {
	a, _ := authority(t)
	files := issue(t, a, cluster, identity.Service, "registry-0", time.Hour)
	client := open(t, files, identity.Service, "", &output{}).Client(identity.Service)
	for _, mode := range []transport.Mode{transport.Allow, transport.Prefer} {
		tr := open(t, files, identity.Service, mode, &output{})
		address, peers := server(t, tr, false)
		for _, config := range []*tls.Config{nil, client} {
			if err := call(t, address, config); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			if p := <-peers; p.Encrypted != (config != nil) {
				t.Errorf("%s: peer %+v", mode, p)
			}
		}
		if encrypts := tr.Client(identity.Service) != nil; encrypts != (mode == transport.Prefer) {
			t.Errorf("%s makes encrypted connections: %v", mode, encrypts)
		}
	}
}

// A new certificate is used for new connections, and connections that exist stay open.
// Invalid files change nothing.
func TestRotation(t *testing.T) {
	a, _ := authority(t)
	log := &output{}
	files := issue(t, a, cluster, identity.Service, "registry-0", time.Hour)
	tr := open(t, files, identity.Service, "", log)
	first := tr.Expires()
	issue(t, a, cluster, identity.Service, "registry-0", 2*time.Hour)
	await(t, func() bool { return tr.Expires().After(first) })
	second := tr.Expires()

	wrong := issue(t, a, cluster, identity.Gateway, "g", 3*time.Hour)
	copyFile(t, wrong.Cert, files.Cert)
	copyFile(t, wrong.Key, files.Key)
	await(t, func() bool {
		return strings.Contains(log.String(), "has the role gateway, and this process needs the role service")
	})
	expired := issue(t, a, cluster, identity.Service, "late", -time.Minute)
	copyFile(t, expired.Cert, files.Cert)
	copyFile(t, expired.Key, files.Key)
	await(t, func() bool { return strings.Contains(log.String(), "the certificate expired at") })
	early := early(t, a, time.Hour)
	copyFile(t, early.Cert, files.Cert)
	copyFile(t, early.Key, files.Key)
	await(t, func() bool { return strings.Contains(log.String(), "the certificate is not valid before") })
	if !tr.Expires().Equal(second) {
		t.Error("an invalid certificate is in use")
	}
}

// A command that runs for long presents the certificate that replaces its own, and its last one while
// the files do not belong together.
func TestClientRotation(t *testing.T) {
	a, _ := authority(t)
	gateway := open(t, issue(t, a, cluster, identity.Gateway, "g", time.Hour), identity.Gateway, "", &output{})
	address, peers := server(t, gateway, true)
	files := issue(t, a, cluster, identity.Operator, "first", time.Hour)
	config, err := transport.RenewedClientConfig(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	config.InsecureSkipVerify = true // the gateway's certificate is for no host
	next := issue(t, a, cluster, identity.Operator, "next", time.Hour)
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "first"},
		{func() { copyFile(t, next.Cert, files.Cert) }, "first"},
		{func() { copyFile(t, next.Key, files.Key) }, "next"},
	} {
		step.change()
		if err := call(t, address, config); err != nil {
			t.Fatal(err)
		}
		if p := <-peers; p.Identity == nil || p.Identity.Name != step.want {
			t.Errorf("got %+v, want %s", p, step.want)
		}
	}
}

// A certificate that is valid for a short time causes a reminder.
func TestReminders(t *testing.T) {
	a, _ := authority(t)
	log := &output{}
	tr := open(t, issue(t, a, cluster, identity.Service, "gw.example.com", time.Hour), identity.Service, "", log)
	if !strings.Contains(log.String(), "the certificate expires soon") {
		t.Errorf("log %q", log)
	}
	if tr.Serves("gw.example.com") || (*transport.Transport)(nil).Serves("gw.example.com") {
		t.Error("a certificate without names is for a name")
	}
}

// A certificate that expires while it is in use is named with its file and its end.
func TestExpired(t *testing.T) {
	a, _ := authority(t)
	files := issue(t, a, cluster, identity.Service, "short", 2*time.Second)
	tr := open(t, files, identity.Service, "", &output{})
	end := tr.Expires()
	if err := tr.Expired(); err != nil && time.Now().Before(end) {
		t.Errorf("before its end: %v", err)
	}
	await(t, func() bool { return tr.Expired() != nil })
	if err := tr.Expired(); !strings.Contains(err.Error(), files.Cert+" expired at "+end.UTC().String()) {
		t.Errorf("after its end: %v", err)
	}
	issue(t, a, cluster, identity.Service, "short", time.Hour)
	await(t, func() bool { return tr.Expired() == nil })
	if err := (*transport.Transport)(nil).Expired(); err != nil {
		t.Errorf("in plain text: %v", err)
	}
}

// A certificate that becomes valid within the time by which clocks differ is used. Until then the
// process is not ready.
func TestNotValidYet(t *testing.T) {
	a, _ := authority(t)
	log := &output{}
	files := early(t, a, 3*time.Minute)
	tr := open(t, files, identity.Service, "", log)
	if err := tr.Expired(); err == nil || !strings.Contains(err.Error(), files.Cert+" is not valid before ") {
		t.Errorf("before its begin: %v", err)
	}
	if !strings.Contains(log.String(), "the certificate is not valid yet") {
		t.Errorf("log %q", log)
	}
}

func TestBadOptions(t *testing.T) {
	a, _ := authority(t)
	foreign, _ := authority(t)
	future := early(t, a, time.Hour)
	files := issue(t, a, cluster, identity.Job, "train", time.Hour)
	expired := issue(t, a, cluster, identity.Service, "late", -time.Minute)
	signed := issue(t, foreign, cluster, identity.Service, "foreign", time.Hour)
	for _, c := range []struct {
		config transport.Config
		want   string
	}{
		{transport.Config{Cert: files.Cert, CA: files.CA}, "--tls-key: is required"},
		{transport.Config{Cert: files.Cert, Key: files.Key, CA: files.CA, Mode: "maybe"}, "--tls-mode: must be require"},
		{transport.Config{Cert: files.Cert, Key: files.Key, CA: files.Key}, "contains no certificate"},
		{transport.Config{Cert: files.Cert, Key: files.CA, CA: files.CA}, files.CA},
		{transport.Config{Cert: files.Cert, Key: files.Key, CA: files.CA}, "needs the role service"},
		{transport.Config{Mode: "require"}, "--tls-mode: has no effect without --tls-cert"},
		{transport.Config{Cert: expired.Cert, Key: expired.Key, CA: expired.CA}, "the certificate expired at"},
		{transport.Config{Cert: future.Cert, Key: future.Key, CA: future.CA},
			"cannot use --tls-cert, --tls-key, --tls-ca: " + future.Cert + ": the certificate is not valid before "},
		{transport.Config{Cert: signed.Cert, Key: signed.Key, CA: files.CA}, "has signed the certificate"},
		{transport.Config{Cert: "/nowhere", Key: files.Key, CA: files.CA}, "/nowhere"},
	} {
		c.config.Cluster, c.config.Roles, c.config.Log = cluster, identity.Service, slog.New(slog.DiscardHandler)
		if tr, err := transport.Open(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v", c.config, tr, err)
		}
	}
	if tr, err := transport.Open(transport.Config{}); tr != nil || err != nil {
		t.Errorf("no options: %v, %v", tr, err)
	}
	only, err := transport.Open(transport.Config{CA: files.CA, Options: "--etcd", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("only an authority for other software: %v", err)
	}
	defer only.Close()
	service := open(t, issue(t, a, cluster, identity.Service, "127.0.0.1", time.Hour), identity.Service, "", &output{})
	address, _ := server(t, service, true)
	if err := call(t, address, only.External("https://"+address)); err == nil {
		t.Error("a server without its host in its certificate is accepted")
	}
}

// ServeHTTP keeps what the server itself adds to the context of a connection.
func TestServeHTTPKeepsTheContextOfTheServer(t *testing.T) {
	type key struct{}
	server := &http.Server{ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, key{}, "kept")
	}}
	transport.ServeHTTP(server)
	ctx := server.ConnContext(t.Context(), &net.TCPConn{})
	if ctx.Value(key{}) != "kept" {
		t.Error("the value is lost")
	}
	if p := transport.PeerIn(ctx); p.Encrypted || p.Identity != nil {
		t.Errorf("peer %+v", p)
	}
}

// The peer of a connection of an unknown kind is not trusted.
func TestAnUnknownConnectionIsNotTrusted(t *testing.T) {
	end, other := net.Pipe()
	defer end.Close()
	defer other.Close()
	if p, err := transport.PeerOf(end); p != transport.Unknown || err != nil {
		t.Errorf("peer %+v, %v", p, err)
	}
	if p := transport.PeerIn(t.Context()); p != transport.Unknown || !p.Encrypted {
		t.Errorf("without a connection: peer %+v", p)
	}
}

// A connection with too many calls that were rejected before their messages were read is
// closed.
func TestAConnectionWithManyRejectedCallsIsClosed(t *testing.T) {
	a, _ := authority(t)
	service := open(t, issue(t, a, cluster, identity.Service, "127.0.0.1", time.Hour), identity.Service, "", &output{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rejected := make(chan int, 1)
	go func() {
		c, err := service.Listener(l, "--listen", false).Accept()
		if err != nil {
			rejected <- 0
			return
		}
		for n := 1; ; n++ {
			p, err := transport.PeerOf(c)
			if err != nil {
				rejected <- 0
				return
			}
			p.CountRejected()
			if _, err := c.Write([]byte("x")); err != nil {
				rejected <- n
				return
			}
		}
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), service.Client(identity.Service))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.Copy(io.Discard, c) //nolint:errcheck // any end counts
	if n := <-rejected; n < 10 {
		t.Errorf("the connection is closed after %d rejected calls", n)
	}
}
