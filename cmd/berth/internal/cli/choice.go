package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/pkg/process"
	"berth.dev/pkg/wire"
)

// choice is the value of a flag that must be an element of a list, in upper or lower case.
type choice struct {
	value string
	list  []string
	set   func(value string)
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return "string" }

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	i := slices.IndexFunc(c.list, func(value string) bool { return strings.EqualFold(value, text) })
	if i < 0 {
		return errors.New("unknown value")
	}
	c.value = c.list[i]
	c.set(c.value)
	return nil
}

// The formats of commands that print objects. A list is a table, and everything else is
// text. The other formats are the same for all commands.
var (
	listFormats = []string{"table", "wide", "json", "yaml", "name"}
	textFormats = []string{"text", "json", "yaml", "name"}
)

// OutputFlag adds --output to the flags of a command that prints a result. See WriteValue.
func OutputFlag(flags *pflag.FlagSet, output *string) { outputFlag(flags, output, textFormats...) }

// outputFlag adds --output to a set of flags. The first format is the default.
func outputFlag(flags *pflag.FlagSet, output *string, formats ...string) {
	*output = formats[0]
	last := len(formats) - 1
	usage := "output format: " + strings.Join(formats[:last], ", ") + " or " + formats[last]
	flags.VarP(&choice{*output, formats, func(value string) { *output = value }}, "output", "o", usage)
}

// enumFlag adds a flag that sets an enum. The value of the flag is the name of an enum
// value.
func enumFlag[E interface {
	~int32
	protoreflect.Enum
}](cmd *cobra.Command, name, usage string, to *E) {
	enum := (*to).Descriptor()
	names := wire.EnumNames(enum)
	set := func(value string) { *to = E(enum.Values().ByName(protoreflect.Name(value)).Number()) }
	cmd.Flags().Var(&choice{"", names, set}, name, usage+": "+strings.Join(names, ", "))
}

// flagError returns the error about a flag that cannot be parsed. If the command before the
// flag does not exist either, the error is about the command.
func flagError(cmd *cobra.Command, err error) error {
	if before := cmd.Flags().Args(); !cmd.HasParent() && len(before) > 0 {
		return unknown(cmd, before, "unknown command %q", before[0])
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if c, ok := invalid.GetFlag().Value.(*choice); ok {
			return fmt.Errorf("--%s must be one of %s, got %q", invalid.GetFlag().Name, strings.Join(c.list, ", "),
				invalid.GetValue())
		}
	}
	return process.FlagError(err)
}
