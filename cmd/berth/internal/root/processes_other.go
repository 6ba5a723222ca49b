//go:build !linux

package root

import "github.com/spf13/cobra"

// ShimMain returns. Only an agent starts this program as the parent process of workers.
func ShimMain() {}

// processes returns no commands.
func processes() []*cobra.Command { return nil }
