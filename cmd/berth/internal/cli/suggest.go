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
	"berth apply": {"create", "diff", "edit", "job", "patch", "replace", "rollout", "run", "sbatch",
		"scale", "submit"},
	"berth cancel":   {"delete", "kill", "remove", "rm", "scancel", "stop"},
	"berth config":   {"context", "ctx", "login", "use-context"},
	"berth describe": {"job", "show", "status"},
	"berth disable":  {"cordon", "eligibility", "taint"},
	"berth drain":    {"evict"},
	"berth enable":   {"uncordon", "untaint"},
	"berth explain":  {"reason", "why"},
	"berth get":      {"api-resources", "list", "ls", "node", "queue", "sinfo", "squeue"},
	"berth logs":     {"log", "output", "stderr", "stdout", "tail"},
	"berth top":      {"cluster-info", "monitor", "stats", "status"},
	"berth wait":     {"rollout"},

	"berth get assignments":  {"alloc", "allocs", "allocations", "po", "pod", "pods", "tasks", "workers"},
	"berth get executors":    {"agents", "hosts", "no", "node", "nodes"},
	"berth get findings":     {"alerts", "problems", "warnings"},
	"berth get leaders":      {"replicas", "servers", "services"},
	"berth get members":      {"endpoints", "hostfile", "peers"},
	"berth get pending":      {"clusterqueues", "localqueues", "queue", "queues"},
	"berth get pools":        {"nodepools", "partitions"},
	"berth get volumes":      {"disks", "persistentvolumes", "pv", "pvc"},
	"berth get reservations": {"gangs", "podgroups", "queue", "workloads"},
	"berth get skus":         {"flavors", "resourceflavors"},
	"berth get tenants":      {"accounts", "namespace", "namespaces", "ns", "quotas"},
	"berth get usage":        {"capacity", "demand"},
}

// noShell is the hint for a command that would run something in a worker.
const noShell = "Berth runs no shell in workers; 'berth logs JOB/STAGE/INDEX -f' prints what a worker writes"

// absent are the words of other tools for what Berth does not do, with their hints.
var absent = map[string]string{"attach": noShell, "cp": noShell, "debug": noShell, "exec": noShell, "ssh": noShell}

// unknown returns the error about a word that is not a subcommand, with a hint that names
// the commands that the user probably means.
func unknown(cmd *cobra.Command, word, format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...), cmd.CommandPath(), suggestion(cmd, word)}
}

// suggestion returns the hint about a word that is not a subcommand of cmd, or nothing if
// no command is similar.
func suggestion(cmd *cobra.Command, word string) string {
	root, lower := cmd.Root(), strings.ToLower(word)
	if cmd == root && absent[lower] != "" {
		return absent[lower]
	}
	var likely []string
	for path, words := range habits {
		if path[:strings.LastIndexByte(path, ' ')] == cmd.CommandPath() && slices.Contains(words, lower) {
			likely = append(likely, path)
		}
	}
	if len(likely) == 0 && cmd != root && has(root, word) {
		likely = append(likely, root.Name()+" "+word)
	}
	if len(likely) == 0 {
		cmd.SuggestionsMinimumDistance = 2 // letters that differ
		for _, name := range cmd.SuggestionsFor(word) {
			likely = append(likely, cmd.CommandPath()+" "+name)
		}
	}
	if len(likely) == 0 {
		return ""
	}
	slices.Sort(likely)
	return "did you mean '" + strings.Join(likely, "' or '") + "'?"
}

// has reports whether a command has a subcommand with a name.
func has(cmd *cobra.Command, name string) bool {
	return slices.ContainsFunc(cmd.Commands(), func(child *cobra.Command) bool { return child.Name() == name })
}
