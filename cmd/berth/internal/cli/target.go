package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/pkg/wire"
)

// target reads JOB[/STAGE[/NAME]] with at least the given number of parts; the
// parts left out are empty.
func target(cmd *cobra.Command, text string, least int) (client.Key, error) {
	parts := strings.Split(text, "/")
	if len(parts) < least || len(parts) > 3 || slices.Contains(parts, "") {
		form := [...]string{1: "JOB[/STAGE[/NAME]]", 2: "JOB/STAGE[/NAME]"}[least]
		return client.Key{}, badUsage(cmd, "%q is not %s; usage: %s", text, form, usageOf(cmd))
	}
	parts = append(parts, "", "")
	return client.Key{Job: parts[0], Stage: parts[1], Name: parts[2]}, nil
}

// workerIDs reads workers written INDEX.NUMBER.
func workerIDs(cmd *cobra.Command, list []string) ([]*berthv1.WorkerID, error) {
	var ids []*berthv1.WorkerID
	for _, text := range list {
		index, number, _ := strings.Cut(strings.TrimSpace(text), ".")
		i, err := strconv.ParseInt(index, 10, 32)
		n, err2 := strconv.ParseInt(number, 10, 32)
		if errors.Join(err, err2) != nil {
			return nil, badUsage(cmd, "--workers %q is not INDEX.NUMBER, such as 2.1", text)
		}
		ids = append(ids, &berthv1.WorkerID{Index: int32(i), Number: int32(n)})
	}
	return ids, nil
}

// enumFlag reads the name of an enum value in any case; an empty one is 0.
func enumFlag(cmd *cobra.Command, flag, name string, enum protoreflect.EnumDescriptor) (protoreflect.EnumNumber, error) {
	if name == "" {
		return 0, nil
	}
	names := wire.EnumNames(enum)
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
		return enum.Values().ByName(protoreflect.Name(names[i])).Number(), nil
	}
	return 0, badUsage(cmd, "--%s %q is none of %s", flag, name, strings.Join(names, ", "))
}

// states lists the values of a --state flag.
func states(enum protoreflect.EnumDescriptor) string { return strings.Join(wire.EnumNames(enum), ", ") }

// oneOf refuses a flag's value that is not in the list.
func oneOf(cmd *cobra.Command, flag, value string, list ...string) error {
	if slices.Contains(list, value) {
		return nil
	}
	return badUsage(cmd, "--%s %q is none of %s", flag, value, strings.Join(list, ", "))
}
