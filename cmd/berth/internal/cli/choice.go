package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
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

// choices is the value of a flag that is a list of elements of a list, in upper or lower case. A word may
// stand for several elements.
type choices struct {
	list  []string // with the words
	words map[string][]string
	set   func(values []string)
	text  string
}

// String implements pflag.Value.
func (c *choices) String() string { return c.text }

// Type implements pflag.Value.
func (c *choices) Type() string { return "strings" }

// Set implements pflag.Value.
func (c *choices) Set(text string) error {
	var values []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.ToUpper(strings.TrimSpace(word))
		switch several := c.words[word]; {
		case several != nil:
			values = append(values, several...)
		case slices.Contains(c.list, word):
			values = append(values, word)
		default:
			return errors.New("unknown value")
		}
	}
	c.text = text
	c.set(values)
	return nil
}

// statesFlag adds the flag --state, a list of values of an enum. If the flag is repeated, the lists are
// joined. words stand for several values.
func statesFlag[E interface {
	~int32
	protoreflect.Enum
}](cmd *cobra.Command, usage string, to *[]E, words map[string][]string) {
	var zero E
	enum := zero.Descriptor()
	names := wire.EnumNames(enum)
	set := func(values []string) {
		for _, value := range values {
			if e := E(enum.Values().ByName(protoreflect.Name(value)).Number()); !slices.Contains(*to, e) {
				*to = append(*to, e)
			}
		}
		slices.Sort(*to)
	}
	all := slices.Clone(names)
	for _, word := range slices.Sorted(maps.Keys(words)) {
		if !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	cmd.Flags().Var(&choices{list: all, words: words, set: set}, "state", usage+": "+strings.Join(all, ", "))
}

// inStates reads a list once for each state, and joins the answers in the order of their keys. Objects
// move on to later states meanwhile: the newest object of a key stays.
func inStates[E ~int32, A proto.Message, M proto.Message](states []E, set func(E), read func() (A, error),
	list func(A) *[]M, key func(M) string) (A, error) {
	if len(states) < 2 {
		for _, s := range states {
			set(s)
		}
		return read()
	}
	var all A
	found := map[string]M{}
	for _, s := range states {
		set(s)
		answer, err := read()
		if err != nil {
			return answer, err
		}
		for _, m := range *list(answer) {
			found[key(m)] = m
		}
		all = answer
	}
	*list(all) = nil
	for _, k := range slices.Sorted(maps.Keys(found)) {
		*list(all) = append(*list(all), found[k])
	}
	return all, nil
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
		if c, ok := invalid.GetFlag().Value.(*choices); ok {
			return fmt.Errorf("--%s must be a list of %s, got %q", invalid.GetFlag().Name,
				strings.Join(c.list, ", "), invalid.GetValue())
		}
	}
	return process.FlagError(err)
}
