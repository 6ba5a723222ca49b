package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
)

// Where the gateway is when nothing says so, and how long a call may take.
const (
	defaultGateway = "127.0.0.1:8080"
	defaultTimeout = 10 * time.Second
)

// gatewayFlags are the flags of every command that asks a gateway.
type gatewayFlags struct {
	gateway string
	timeout time.Duration
}

// asks adds the flags of a command that asks a gateway.
func (a *app) asks(cmd *cobra.Command) *cobra.Command {
	return a.asksWithin(cmd, defaultTimeout, "how long one call may take, retries included; -w and -f apply it to connecting")
}

// asksWithin is asks with a time-out of its own.
func (a *app) asksWithin(cmd *cobra.Command, timeout time.Duration, usage string) *cobra.Command {
	address := a.Env("BERTH_GATEWAY")
	if address == "" {
		address = defaultGateway
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.flags.gateway, "gateway", address, "gateways to ask, HOST:PORT[,HOST:PORT…] or http:// URLs of them; or set BERTH_GATEWAY")
	flags.DurationVar(&timeout, "timeout", timeout, usage)
	prior := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if timeout <= 0 {
			return badUsage(cmd, "--timeout must be longer than 0, got %v", timeout)
		}
		a.flags.timeout = timeout
		if prior != nil {
			return prior(cmd, args)
		}
		return nil
	}
	return cmd
}

// noticeEvery is the least time between two notices that no gateway answers.
const noticeEvery = 10 * time.Second

// dial makes the client. It says once in a while that no gateway answers yet,
// so that nobody stares at nothing.
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
			fmt.Fprintf(a.Err, "berth: no answer yet from %s: %s; trying on\n",
				gateways, dialled(gateways, fault.Of(err).Message))
		}
	}))
}

// call makes a client for f, within the time-out.
func (a *app) call(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, cancel := a.limited(ctx)
		defer cancel()
		return f(ctx, c)
	})
}

// connected makes a client for f, which bounds its calls itself.
func (a *app) connected(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(cmd.Context(), c)
}

// limited bounds one call by the time-out.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.flags.timeout)
}
