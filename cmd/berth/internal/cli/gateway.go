package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
)

// The defaults of --gateway and --timeout.
const (
	defaultGateway = "127.0.0.1:8080"
	defaultTimeout = 10 * time.Second
)

// gatewayFlags are the flags of every command that calls a gateway.
type gatewayFlags struct {
	gateway string
	timeout time.Duration
}

// calls adds the flags of a command that calls a gateway.
func (a *app) calls(cmd *cobra.Command) *cobra.Command {
	return a.callsWithin(cmd, defaultTimeout,
		"maximum time of a call including retries; with -w and -f, of the first call")
}

// callsWithin does the same as calls, with another default timeout and another help text of
// --timeout.
func (a *app) callsWithin(cmd *cobra.Command, timeout time.Duration, usage string) *cobra.Command {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.flags.gateway, "gateway", cmp.Or(a.Env("BERTH_GATEWAY"), defaultGateway),
		"gateway addresses, HOST:PORT[,HOST:PORT…] or http:// URLs; or set BERTH_GATEWAY")
	flags.DurationVar(&timeout, "timeout", timeout, usage)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return badUsage(cmd, "--timeout must be longer than 0, got %v", timeout)
		}
		a.flags.timeout = timeout
		return nil
	}
	return cmd
}

// noticeEvery is the minimum interval between two notices that no gateway answers.
const noticeEvery = 10 * time.Second

// dial returns a client. While no gateway answers, the client prints a notice at most
// once per noticeEvery.
func (a *app) dial() (*client.Client, error) {
	addresses, err := client.Addresses(strings.Split(a.flags.gateway, ","), nil)
	if err != nil {
		return nil, err
	}
	gateways := strings.Join(addresses, ", ")
	var noticed time.Time
	return client.Dial(addresses, client.WithOnRetry(func(err error) {
		if now := a.Now(); noticed.IsZero() || now.Sub(noticed) >= noticeEvery {
			noticed = now
			fmt.Fprintf(a.Err, "berth: no answer yet from %s: %s; retrying\n",
				gateways, dialled(gateways, fault.Of(err).Message))
		}
	}))
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
	return f(cmd.Context(), c)
}

// limited returns a context that ends after the timeout.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.flags.timeout)
}
