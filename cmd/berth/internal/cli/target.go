package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// target parses JOB[/STAGE[/NAME]] with at least the given number of parts. Omitted parts are
// empty.
func target(cmd *cobra.Command, text string, least int) (client.Key, error) {
	parts := strings.Split(text, "/")
	if len(parts) < least || len(parts) > 3 || slices.Contains(parts, "") {
		form := [...]string{1: "JOB[/STAGE[/NAME]]", 2: "JOB/STAGE[/NAME]"}[least]
		return client.Key{}, badUsage(cmd, "%q is not %s; usage: %s", text, form, usageOf(cmd))
	}
	parts = append(parts, "", "")
	return client.Key{Job: parts[0], Stage: parts[1], Name: parts[2]}, nil
}

// workerIDs parses worker IDs of the form INDEX.NUMBER.
func workerIDs(cmd *cobra.Command, list []string) ([]*berthv1.WorkerID, error) {
	var ids []*berthv1.WorkerID
	for _, text := range list {
		index, number, _ := strings.Cut(strings.TrimSpace(text), ".")
		i, err := strconv.ParseInt(index, 10, 32)
		n, err2 := strconv.ParseInt(number, 10, 32)
		if errors.Join(err, err2) != nil {
			return nil, badUsage(cmd, "--workers must be INDEX.NUMBER, such as 2.1, got %q", text)
		}
		ids = append(ids, &berthv1.WorkerID{Index: int32(i), Number: int32(n)})
	}
	return ids, nil
}
