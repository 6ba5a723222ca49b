package cli

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli/show"
)

// saved is a context as `config list` prints it.
type saved struct {
	Name     string            `json:"name"`
	Current  bool              `json:"current"`
	Settings map[string]string `json:"settings"`
}

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Manage contexts: named gateways with their credentials",
		Long: `Manage contexts. A context is a name for gateways and the files with your credentials
for them. The contexts are in $BERTH_CONTEXTS, or in berth/config.yaml in your directory for
configurations (on Linux ~/.config). Only you can read the file.

Commands use the current context, or the one that --context names. A flag has precedence
over --context, --context over a variable in the environment, and a variable over the
current context. If a flag or variable names a gateway that the context does not have,
the credentials of the context are not used.`,
		Example: "  berth config set prod --gateway https://gateway-0:8080 --token-file token\n  berth config use prod\n  berth config list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return badUsage(cmd, "missing subcommand: must be one of current-context, delete, list, set, use")
		},
	}
	cmd.AddCommand(a.configUse(), a.configSet(), a.configList(), a.configCurrent(), a.configDelete())
	return cmd
}

// edit reads the configuration, lets change modify it, and writes it.
func (a *app) edit(change func(c *configuration) error) error {
	path := a.configPath()
	if path == "" {
		return fault.New(fault.Precondition, "", "no directory for configurations is known; set BERTH_CONTEXTS to a file")
	}
	config, err := readConfig(path)
	if err != nil {
		return err
	}
	if err := change(config); err != nil {
		return err
	}
	return config.write(path)
}

// existingContext returns an error if there is no context with a name.
func existingContext(c *configuration, name string) error {
	if c.Contexts[name] == nil {
		return fault.New(fault.NotFound, fault.ReasonNotFound, "%s", c.unknown(name))
	}
	return nil
}

func (a *app) configUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Aliases: []string{"use-context"}, Short: "Make a context the current one", Args: cobra.ExactArgs(1),
		Example:           "  berth config use prod",
		ValidArgsFunction: single(a.completeContext),
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.edit(func(c *configuration) error {
				c.Current = args[0]
				return existingContext(c, args[0])
			})
			if err != nil {
				return err
			}
			return a.print("context " + args[0] + " is current")
		},
	}
}

func (a *app) configSet() *cobra.Command {
	values := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or change a context",
		Long: `Create or change a context. The command changes only the given settings, and removes
those with an empty value. It stores absolute paths of files, and does not read the files.`,
		Example: `  berth config set prod --gateway https://gateway-0:8080,https://gateway-1:8080 \
    --tls-ca ca.crt --tls-cert operator-alice.crt --tls-key operator-alice.key
  berth config set prod --token-file ~/.berth-token`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: single(a.completeContext),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.edit(func(c *configuration) error {
				settings := c.Contexts[args[0]]
				if settings == nil {
					settings = map[string]string{}
					c.Contexts[args[0]] = settings
				}
				for name, value := range values {
					if !cmd.Flags().Changed(name) {
						continue
					}
					if *value == "" {
						delete(settings, name)
						continue
					}
					settings[name] = *value
					if name != "gateway" {
						path, err := filepath.Abs(*value)
						if err != nil {
							return fault.BadField(fault.ReasonInvalid, "--"+name, "%v", err)
						}
						settings[name] = path
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.print("context " + args[0] + " stored")
		},
	}
	for _, s := range a.flags.settings() {
		values[s.name] = cmd.Flags().String(s.name, "", s.usage)
	}
	return cmd
}

func (a *app) configList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"get-contexts", "view"}, Short: "List contexts", Args: cobra.NoArgs,
		Example: "  berth config list\n  berth config list -o yaml",
		RunE: func(*cobra.Command, []string) error {
			config, err := readConfig(a.configPath())
			if err != nil {
				return err
			}
			list := []saved{}
			var rows [][]string
			for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
				s := saved{name, name == config.Current, config.Contexts[name]}
				list = append(list, s)
				rows = append(rows, []string{name, map[bool]string{true: "yes"}[s.Current], s.Settings["gateway"],
					s.Settings["tls-ca"], s.Settings["tls-cert"], s.Settings["token-file"]})
			}
			table := show.Contexts(rows)
			if len(list) == 0 {
				fmt.Fprintln(a.Err, "No contexts.")
			}
			return a.value(output, map[string][]saved{"contexts": list}, table.String(), table.Names())
		},
	}
	outputFlag(cmd.Flags(), &output, "table", "json", "yaml", "name")
	return cmd
}

func (a *app) configCurrent() *cobra.Command {
	return &cobra.Command{
		Use: "current-context", Aliases: []string{"current"}, Short: "Print the name of the current context",
		Args: cobra.NoArgs, Example: "  berth config current-context",
		RunE: func(*cobra.Command, []string) error {
			config, err := readConfig(a.configPath())
			if err != nil {
				return err
			}
			if config.Current == "" {
				return fault.New(fault.NotFound, "", "no context is current; choose one with 'berth config use NAME'")
			}
			return a.print(config.Current)
		},
	}
}

func (a *app) configDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a context", Args: cobra.ExactArgs(1),
		Long: `Delete a context. If it is the current context, no context is current afterwards. The
files that it names stay.`,
		Example:           "  berth config delete staging",
		ValidArgsFunction: single(a.completeContext),
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.edit(func(c *configuration) error {
				err := existingContext(c, args[0])
				delete(c.Contexts, args[0])
				if c.Current == args[0] {
					c.Current = ""
				}
				return err
			})
			if err != nil {
				return err
			}
			return a.print("context " + args[0] + " deleted")
		},
	}
}

// completeContext completes the name of a context.
func (a *app) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := readConfig(a.configPath())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.Sorted(maps.Keys(config.Contexts))
	return names[:min(len(names), completionValues)], cobra.ShellCompDirectiveNoFileComp
}

// applyContext sets the gateway flags of a command that neither the command line nor the
// environment sets, from the context. Another gateway must not receive the credentials of
// the context, so a context whose gateways are not those of the command sets nothing.
func (a *app) applyContext(cmd *cobra.Command, timeout time.Duration) error {
	if timeout <= 0 {
		return badUsage(cmd, "--timeout must be longer than 0, got %v", timeout)
	}
	a.flags.timeout = timeout
	name, chosen := cmd.Flag("context").Value.String(), cmd.Flag("context").Changed
	path := a.configPath()
	config, err := readConfig(path)
	if err != nil {
		return err
	}
	if !chosen {
		name = config.Current
	}
	if name == "" {
		return nil
	}
	settings := config.Contexts[name]
	if settings == nil {
		return fault.BadField(fault.ReasonInvalid, "--context", "%s: %s", path, config.unknown(name))
	}
	all := a.flags.settings()
	set := func(s setting) bool { return cmd.Flag(s.name).Changed || !chosen && a.Env(s.variable()) != "" }
	other := "" // the flag or variable with a gateway that the context does not have
	if gateway := all[0]; set(gateway) && !covers(settings[gateway.name], a.flags.gateway) {
		other = gateway.variable()
		if cmd.Flag(gateway.name).Changed {
			other = "--" + gateway.name
		}
	}
	for _, s := range all {
		switch value := settings[s.name]; {
		case value == "" || set(s):
		case other != "":
			a.flags.unused = fmt.Sprintf("the credentials of context %s are not used, because %s names a gateway that the "+
				"context does not have", name, other)
		default:
			*s.to = value
			a.flags.context = "context " + name + " in " + path
		}
	}
	return nil
}

// covers reports whether a list of gateways contains all gateways of another list. The
// scheme is no part of an address.
func covers(list, others string) bool {
	known := gatewayHosts(list)
	return !slices.ContainsFunc(gatewayHosts(others), func(host string) bool { return !slices.Contains(known, host) })
}

// gatewayHosts returns the elements of a list of gateways as HOST:PORT.
func gatewayHosts(list string) []string {
	hosts := strings.Split(strings.ToLower(list), ",")
	for i, host := range hosts {
		if _, rest, found := strings.Cut(host, "://"); found {
			host = rest
		}
		hosts[i] = strings.TrimSuffix(strings.TrimSpace(host), "/")
	}
	return hosts
}
