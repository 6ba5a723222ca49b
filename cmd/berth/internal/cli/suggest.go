package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth.dev/api/fault"
)

// habits are the words of other tools for commands of berth: Slurm, kubectl, Nomad, Ray and
// Docker. An error about an unknown command suggests the commands whose list contains it. A pair of
// words precedes its first word.
var habits = map[string][]string{
	"berth apply -f FILE": {"create", "edit", "job run", "job submit", "launch", "patch", "replace", "reserve", "resize",
		"rollout", "run", "salloc", "sbatch", "scale", "srun", "start", "submit", "update", "up"},
	"berth apply -f FILE --dry-run": {"diff", "job plan"},
	"berth cancel JOB": {"delete", "down", "job delete", "job stop", "kill", "remove", "rm", "scancel", "stop",
		"terminate"},
	"berth config list":             {"context", "contexts", "ctx", "login", "use-context"},
	"berth describe":                {"describe-job", "job", "job status", "scontrol", "show", "status"},
	"berth disable ID":              {"cordon", "eligibility", "taint"},
	"berth doctor":                  {"check", "diagnose", "health", "ping"},
	"berth drain ID":                {"evict", "node drain"},
	"berth enable ID":               {"uncordon", "untaint"},
	"berth events JOB":              {"alloc events", "history", "sacct"},
	"berth explain":                 {"reason", "sprio", "why"},
	"berth get":                     {"api-resources", "list", "ls"},
	"berth get jobs":                {"job list"},
	"berth get leaders":             {"server", "server members"},
	"berth logs":                    {"alloc logs", "cat", "job logs", "log", "output", "stderr", "stdout", "tail"},
	"berth signal JOB/STAGE SIGNAL": {"alloc signal"},
	"berth top": {"cluster-info", "dashboard", "info", "monitor", "sdiag", "sstat", "stats", "status", "summary",
		"system"},
	"berth wait":         {"rollout status"},
	"berth whoami":       {"auth", "auth can-i", "auth whoami"},
	"berth get audit":    {"audit-log", "auditlog"},
	"berth get findings": {"alerts", "problems", "warnings"},
	"berth get members":  {"endpoints", "hostfile", "peers"},

	"berth get assignments":  {"ps"},
	"berth get executors":    {"node status", "sinfo"},
	"berth get reservations": {"gangs", "podgroups", "squeue", "workloads"},
	"berth get volumes":      {"disks", "persistentvolumes", "pv", "pvc"},
	"berth get skus":         {"flavors", "resourceflavors"},
	"berth get tenants":      {"accounts", "namespace", "namespaces", "ns", "quotas", "sacctmgr"},
	"berth get usage":        {"capacity", "demand"},
}

// noShell is the hint for a command that would run something in a worker.
const noShell = "Berth runs no shell in workers; 'berth logs JOB/STAGE/INDEX -f' prints what a worker writes"

// noRestart is the hint for a command that would restart workers.
const noRestart = "Berth restarts workers that end if the job file sets 'restart'; to start all workers of a stage again, " +
	"cancel the stage and apply its job file"

// noPause is the hint for a command that would stop a job for a time.
const noPause = "Berth does not pause jobs; 'hold: HOLD' in a job file keeps executors until 'berth bind JOB/STAGE'"

// absent are the words of other tools for what Berth does not do, with their hints.
var absent = map[string]string{
	"attach": noShell, "cp": noShell, "debug": noShell, "exec": noShell, "port-forward": noShell, "ssh": noShell,
	"alloc exec":  noShell,
	"job restart": noRestart, "reload": noRestart, "requeue": noRestart, "reschedule": noRestart, "restart": noRestart,
	"alloc restart": noRestart, "rollout restart": noRestart,
	"hold": noPause, "pause": noPause, "resume": noPause, "suspend": noPause, "unpause": noPause,
}

// reading are the commands that change nothing. A word with similar letters may be any of these:
// a command that changes or stops something is suggested only by its meaning.
var reading = []string{"config", "config current-context", "config list", "describe", "doctor", "events", "explain",
	"get", "help", "inspect", "logs", "plan", "top", "version", "wait", "whoami"}

// reads reports whether a command changes nothing.
func reads(cmd *cobra.Command) bool {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	first, _, _ := strings.Cut(path, " ")
	return slices.Contains(reading, path) || (first == "get" || first == "describe")
}

// unknown returns the error about a word that is not a subcommand, with a hint that names
// the commands that the user probably means. words are that word and the arguments after it.
func unknown(cmd *cobra.Command, words []string, format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...), cmd.CommandPath(), suggestion(cmd, words)}
}

// suggestion returns the hint about a word that is not a subcommand of cmd, or nothing if
// no command is similar. words are that word and the arguments after it.
func suggestion(cmd *cobra.Command, words []string) string {
	var likely []string
	for n := min(2, len(words)); n > 0 && len(likely) == 0; n-- {
		word := strings.ToLower(strings.Join(words[:n], " "))
		if hint := absent[word]; hint != "" && cmd == cmd.Root() {
			return hint
		}
		likely = meant(cmd, word, words[n:])
	}
	if len(likely) == 0 {
		likely = misspelled(cmd, words)
	}
	if len(likely) == 0 {
		return ""
	}
	slices.Sort(likely)
	return "did you mean '" + strings.Join(slices.Compact(likely), "' or '") + "'?"
}

// meant returns the command lines with the meaning of a word. rest are the arguments after the word.
func meant(cmd *cobra.Command, word string, rest []string) (likely []string) {
	root := cmd.Root()
	for line, words := range habits {
		if slices.Contains(words, word) && (cmd == root || reads(find(root, line))) {
			likely = append(likely, withArgs(root, line, rest))
		}
	}
	if len(likely) > 0 {
		return likely
	}
	if list := child(root, "get"); cmd == root && child(list, word) != nil { // a kind
		return []string{withArgs(root, list.CommandPath()+" "+child(list, word).Name(), rest)}
	}
	if same := child(root, word); cmd != root && same != nil && reads(same) {
		return []string{withArgs(root, same.CommandPath(), rest)}
	}
	return nil
}

// find returns the command of a command line.
func find(root *cobra.Command, line string) *cobra.Command {
	cmd, _, err := root.Find(strings.Fields(line)[1:])
	if err != nil {
		return root
	}
	return cmd
}

// withArgs returns a command line with the arguments of the user, if the command needs arguments: in
// place of the name in capitals. A list of kinds gets the kind.
func withArgs(root *cobra.Command, line string, rest []string) string {
	fields := strings.Fields(line)
	cmd := find(root, line)
	if len(rest) == 0 {
		return line
	}
	if kind := child(cmd, strings.ToLower(rest[0])); kind != nil {
		line, rest = line+" "+kind.Name(), rest[1:]
	}
	if last := fields[len(fields)-1]; last == "FILE" || strings.HasPrefix(last, "-") || len(rest) == 0 {
		return line
	} else if strings.ToUpper(last) == last {
		line = strings.TrimSuffix(line, " "+last)
	} else if !reads(cmd) {
		return line
	}
	if cmd.Args != nil && cmd.Args(cmd, rest) != nil {
		return strings.Join(fields, " ")
	}
	return line + " " + quoted(rest)
}

// misspelled returns the command lines whose command changes nothing and has similar letters.
func misspelled(cmd *cobra.Command, words []string) (likely []string) {
	cmd.SuggestionsMinimumDistance = 2 // letters that differ
	for _, name := range cmd.SuggestionsFor(words[0]) {
		if similar := child(cmd, name); similar != nil && reads(similar) {
			likely = append(likely, withArgs(cmd.Root(), similar.CommandPath(), words[1:]))
		}
	}
	return likely
}

// child returns the subcommand with a name or an alias, or nil.
func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}
	return nil
}

// quoted returns arguments as a shell reads them.
func quoted(args []string) string {
	list := slices.Clone(args)
	for i, arg := range list {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$&|;<>()*?[]#~`!{}") {
			list[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// flagHabits are the words of other tools for flags. --yes and flags like it have none.
var flagHabits = map[string][]string{
	"attributes": {"label", "labels", "l", "selector"},
	"deadline":   {"wait-timeout"},
	"executor":   {"host", "node", "nodelist", "w"},
	"file":       {"filename"},
	"follow":     {"watch"},
	"for":        {"condition", "until"},
	"gateway":    {"addr", "address", "host", "server", "s"},
	"history":    {"past"},
	"job":        {"n", "name", "jobs"},
	"kind":       {"reason", "type", "types"},
	"output":     {"format"},
	"pool":       {"p", "partition"},
	"prefix":     {"n", "namespace"},
	"sku":        {"flavor", "instance-type", "p", "partition"},
	"state":      {"field-selector", "filter", "states", "status", "t"},
	"tail":       {"last", "limit", "lines", "n"},
	"versions":   {"previous", "all-versions"},
	"watch":      {"f", "follow", "i", "iterate"},
	"wide":       nil,
}

// needless are flags of other tools that select what berth selects without a flag.
var needless = []string{"A", "a", "all", "all-namespaces"}

// unknownFlag returns the error about a flag that does not exist, with the command line that the user
// probably means. args is the whole command line.
func unknownFlag(cmd *cobra.Command, err error, args []string) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || !cmd.HasParent() {
		return err
	}
	name, written := missing.GetSpecifiedName(), "--"+missing.GetSpecifiedName()
	if missing.GetSpecifiedShortnames() != "" {
		written = "-" + name
	}
	hint := ""
	switch flag := similarFlag(cmd, name); {
	case flag != "":
		hint = replaced(args, written, "--"+flag)
	case slices.Contains(needless, name) && reads(cmd):
		hint = replaced(args, written, "")
	}
	if hint == "" {
		return err
	}
	return usageError{err, cmd.CommandPath(), "did you mean 'berth " + hint + "'?"}
}

// similarFlag returns the flag of a command that has the meaning of a name or, if the command changes
// nothing, similar letters.
func similarFlag(cmd *cobra.Command, name string) string {
	for _, flag := range slices.Sorted(maps.Keys(flagHabits)) {
		if slices.Contains(flagHabits[flag], name) && cmd.Flags().Lookup(flag) != nil {
			return flag
		}
	}
	best, least := "", 3
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if d := fault.Distance(flag.Name, name); reads(cmd) && len(name) > 2 && d < least {
			best, least = flag.Name, d
		}
	})
	return best
}

// replaced returns a command line with another flag, or without the flag.
func replaced(args []string, flag, by string) string {
	var list []string
	found := false
	for _, arg := range args {
		name, value, valued := strings.Cut(arg, "=")
		switch {
		case found || name != flag:
			list = append(list, arg)
		case by != "" && valued:
			list = append(list, by+"="+value)
		case by != "":
			list = append(list, by)
		}
		found = found || name == flag
	}
	if !found {
		return ""
	}
	return quoted(list)
}
