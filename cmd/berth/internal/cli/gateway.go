package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/pkg/transport"
)

// The defaults of --gateway and --timeout.
const (
	defaultGateway = "127.0.0.1:8080"
	defaultTimeout = 10 * time.Second
)

// gatewayFlags are the flags of every command that calls a gateway.
type gatewayFlags struct {
	gateway                string
	timeout                time.Duration
	tlsCert, tlsKey, tlsCA string
	tokenFile              string
	// proxy returns the proxy for an address of a gateway with TLS.
	proxy func(address string) rpc.Proxy
	// context describes the context that has set other fields, for errors.
	context string
	// unused is the notice that the credentials of the context are not used, or empty.
	unused string
}

// calls adds the flags of a command that calls a gateway.
func (a *app) calls(cmd *cobra.Command) *cobra.Command {
	return a.callsWithin(cmd, defaultTimeout,
		"maximum time of a call including retries; with -w and -f, of the first call")
}

// setting is a flag of gatewayFlags that a context can set.
type setting struct {
	to          *string
	name, usage string
}

// variable returns the variable of the environment that sets a setting.
func (s setting) variable() string {
	return "BERTH_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settingNames are the names of all settings.
var settingNames = []string{"gateway", "tls-ca", "tls-cert", "tls-key", "token-file"}

// settings returns the settings in the order of settingNames.
func (f *gatewayFlags) settings() []setting {
	return []setting{
		{&f.gateway, "gateway",
			"gateway addresses, HOST:PORT[,HOST:PORT…], http:// or https:// URLs, also below a path such as https://HOST/berth"},
		{&f.tlsCA, "tls-ca", "file (PEM) of the gateways' certificate authorities (with https://, default: those of this host)"},
		{&f.tlsCert, "tls-cert", "certificate file (PEM) that proves your role"},
		{&f.tlsKey, "tls-key", "key file (PEM) of the certificate"},
		{&f.tokenFile, "token-file", "file with a bearer token that proves your role"},
	}
}

// callsWithin does the same as calls, with another default timeout and another help text of
// --timeout.
func (a *app) callsWithin(cmd *cobra.Command, timeout time.Duration, usage string) *cobra.Command {
	flags := cmd.PersistentFlags()
	for _, s := range a.flags.settings() {
		value := a.Env(s.variable())
		if s.name == "gateway" {
			value = cmp.Or(value, defaultGateway)
		}
		flags.StringVar(s.to, s.name, value, s.usage+"; or set "+s.variable())
	}
	flags.DurationVar(&timeout, "timeout", timeout, usage)
	flags.BoolVar(&a.noColor, "no-color", false, "show states without colors; or set NO_COLOR")
	flags.String("context", "", "name of the context with the gateways and credentials (default: the current context)")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.applyContext(cmd, timeout); err != nil {
			return failure{err}
		}
		if a.flags.unused != "" {
			fmt.Fprintln(a.Err, "berth: "+a.flags.unused)
		}
		return nil
	}
	return cmd
}

// noticeEvery is the minimum interval between two notices that no gateway answers.
const noticeEvery = 10 * time.Second

// security returns the TLS configuration of calls to the gateways; nil for plain text.
func (f gatewayFlags) security() (*tls.Config, error) {
	config, err := transport.RenewedClientConfig(f.tlsCert, f.tlsKey, f.tlsCA)
	if err == nil && config == nil && strings.Contains(f.gateway, "https://") {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return config, err
}

// addresses returns the addresses of the gateways.
func (f gatewayFlags) addresses(security *tls.Config) ([]string, error) {
	return client.Addresses(strings.Split(f.gateway, ","), security)
}

// options returns the addresses of the gateways, and how to call them.
func (f gatewayFlags) options() (addresses []string, options []client.Option, err error) {
	defer func() { err = f.placed(err) }()
	security, err := f.security()
	if err != nil {
		return nil, nil, err
	}
	if addresses, err = f.addresses(security); err != nil {
		return nil, nil, err
	}
	options = append(options, client.WithTLS(security))
	if security != nil {
		options = append(options, client.WithProxy(f.proxy))
	}
	if f.tokenFile == "" {
		return addresses, options, nil
	}
	if security == nil {
		return nil, nil, fault.BadField(fault.ReasonInvalid, "--token-file",
			"the token is sent only with TLS: use --gateway https://HOST:PORT or --tls-ca")
	}
	if _, err := f.token(context.Background()); err != nil {
		return nil, nil, fault.New(fault.Invalid, fault.ReasonInvalid, "cannot use --token-file: %v", err)
	}
	return addresses, append(options, client.WithToken(f.token)), nil
}

// placed adds the context that has set other fields to an error about them.
func (f gatewayFlags) placed(err error) error {
	if err != nil && f.context != "" {
		return fmt.Errorf("%s: %w", f.context, err)
	}
	return err
}

// checkCertificate returns an error if the certificate of this command cannot prove its role now. A
// check of a cluster reports it instead.
func (f gatewayFlags) checkCertificate() error {
	security, err := f.security()
	if err == nil {
		err = transport.CheckValid(security, f.tlsCert)
	}
	return f.placed(err)
}

// token reads the bearer token, which another program may renew during a watch.
func (f gatewayFlags) token(context.Context) (string, error) {
	text, err := os.ReadFile(f.tokenFile)
	return strings.TrimSpace(string(text)), err
}

// dial returns a client. While no gateway answers, the client prints a notice at most
// once per noticeEvery.
func (a *app) dial() (*client.Client, error) {
	addresses, options, err := a.flags.options()
	if err == nil {
		err = a.flags.checkCertificate()
	}
	if err != nil {
		return nil, err
	}
	gateways := strings.Join(addresses, ", ")
	var noticed time.Time
	return client.Dial(addresses, append(options, client.WithOnRetry(func(err error) {
		a.retried.Store(fault.Of(err))
		if now := a.Now(); noticed.IsZero() || now.Sub(noticed) >= noticeEvery {
			noticed = now
			why := dialled(gateways, fault.Of(err).Message)
			if !fault.Is(err, fault.ReasonExecutorUnreachable) { // the gateway has answered
				why = "no answer yet from " + gateways + ": " + why
			}
			fmt.Fprintf(a.Err, "berth: %s; retrying\n", why)
		}
	}))...)
}

// call calls f with a client and a context that ends after the timeout.
func (a *app) call(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, cancel := a.limited(ctx)
		defer cancel()
		return f(ctx, c)
	})
}

// connected calls f with a client. f must limit the time of its calls itself.
func (a *app) connected(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if err = f(cmd.Context(), c); err == nil {
		return nil
	}
	ctx, cancel := a.limited(cmd.Context())
	defer cancel()
	return a.flags.withTLSHint(withSimilar(ctx, c, err))
}

// limited returns a context that ends after the timeout.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.flags.timeout)
}
