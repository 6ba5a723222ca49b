// Package root makes the command `berth` with all its subcommands.
package root

import (
	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/certificates"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/restore"
)

// New returns the commands of this operating system. Outside Linux, these are the
// commands of Client: agents and the commands that start processes need Linux.
func New(streams cli.Streams) *cobra.Command {
	root := Client(streams)
	root.AddCommand(processes()...)
	return root
}

// Client returns the commands that call a cluster or work on files. They are the same on
// every operating system.
func Client(streams cli.Streams) *cobra.Command {
	root := cli.New(streams)
	root.AddCommand(certificates.Command())
	root.AddCommand(restore.Commands()...)
	return root
}
