package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// habits are the words of other tools for commands of berth. An error about an unknown
// command suggests the commands whose list contains it.
var habits = map[string][]string{
	"berth apply":    {"create", "diff", "edit", "job", "patch", "plan", "replace", "run", "sbatch", "scale", "submit"},
	"berth cancel":   {"delete", "kill", "remove", "rm", "scancel", "stop"},
	"berth config":   {"context", "ctx", "login", "use-context"},
	"berth describe": {"job", "show", "status"},
	"berth disable":  {"cordon", "eligibility", "taint"},
	"berth drain":    {"evict"},
	"berth enable":   {"uncordon", "untaint"},
	"berth explain":  {"reason", "why"},
	"berth get":      {"list", "ls", "node", "queue", "sinfo", "squeue"},
	"berth logs":     {"log", "output", "stderr", "stdout", "tail"},
	"berth top":      {"cluster-info", "monitor", "stats", "status"},

	"berth get assignments":  {"alloc", "allocs", "allocations", "pods", "tasks", "workers"},
	"berth get executors":    {"agents", "hosts", "node", "nodes"},
	"berth get findings":     {"alerts", "problems", "warnings"},
	"berth get leaders":      {"members", "replicas", "servers", "services"},
	"berth get pending":      {"clusterqueues", "localqueues", "queue", "queues"},
	"berth get pools":        {"nodepools", "partitions"},
	"berth get reservations": {"gangs", "podgroups", "queue", "workloads"},
	"berth get skus":         {"flavors", "resourceflavors"},
	"berth get tenants":      {"accounts", "namespaces", "quotas"},
	"berth get usage":        {"capacity", "demand"},
}

// unknown returns the error about a word that is not a subcommand, with a hint that names
// the commands that the user probably means.
func unknown(cmd *cobra.Command, word, format string, args ...any) error {
	err := usageError{error: fmt.Errorf(format, args...), command: cmd.CommandPath()}
	var likely []string
	for path, words := range habits {
		if path[:strings.LastIndexByte(path, ' ')] == cmd.CommandPath() && slices.Contains(words, strings.ToLower(word)) {
			likely = append(likely, path)
		}
	}
	if root := cmd.Root(); len(likely) == 0 && cmd != root && has(root, word) {
		likely = append(likely, root.Name()+" "+word)
	}
	if len(likely) == 0 {
		cmd.SuggestionsMinimumDistance = 2 // letters that differ
		for _, name := range cmd.SuggestionsFor(word) {
			likely = append(likely, cmd.CommandPath()+" "+name)
		}
	}
	if slices.Sort(likely); len(likely) > 0 {
		err.hint = "did you mean '" + strings.Join(likely, "' or '") + "'?"
	}
	return err
}

// has reports whether a command has a subcommand with a name.
func has(cmd *cobra.Command, name string) bool {
	return slices.ContainsFunc(cmd.Commands(), func(child *cobra.Command) bool { return child.Name() == name })
}
