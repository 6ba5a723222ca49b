package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth.dev/api/fault"
	"berth.dev/client"
)

// habits are the words of other tools for commands of berth: Slurm, PBS, LSF, kubectl, Nomad, Ray and
// Docker. An error about an unknown command suggests the commands whose list contains it. A pair of
// words precedes its first word; if the second one is a kind, it stands for all words for the kind.
var habits = map[string][]string{
	"berth apply -f FILE": {"bsub", "create", "edit", "job run", "job submit", "launch", "patch", "qsub", "replace",
		"reserve", "resize", "rollout", "run", "salloc", "sbatch", "scale", "srun", "start", "submit", "update", "up"},
	"berth apply -f FILE --dry-run": {"diff", "job plan", "validate"},
	"berth cancel JOB": {"bkill", "delete", "down", "job delete", "job stop", "kill", "qdel", "remove", "rm", "scancel",
		"stop", "terminate"},
	"berth config list": {"context", "contexts", "ctx", "login", "use-context"},
	"berth describe":    {"describe-job", "job", "job status", "scontrol", "show", "status"},
	"berth disable ID":  {"cordon", "eligibility", "taint"},
	"berth doctor":      {"check", "diagnose", "health", "ping"},
	"berth drain ID":    {"evict", "node drain"},
	"berth enable ID":   {"resume executors", "uncordon", "undrain", "untaint"},
	"berth events JOB":  {"alloc events", "history", "sacct"},
	"berth explain":     {"reason", "sprio", "why"},
	"berth get":         {"api-resources", "list", "ls"},
	"berth get jobs":    {"job list"},
	"berth get leaders": {"server", "server members"},
	"berth logs": {"alloc logs", "bpeek", "cat", "job logs", "log", "output", "stderr", "stdout",
		"tail"},
	"berth signal JOB/STAGE SIGNAL": {"alloc signal"},
	"berth top": {"cluster-info", "dashboard", "info", "monitor", "sdiag", "sstat", "stats", "status", "summary",
		"system"},
	"berth wait":         {"rollout status"},
	"berth whoami":       {"auth", "auth can-i", "auth whoami"},
	"berth get audit":    {"audit-log", "auditlog"},
	"berth get findings": {"alerts", "problems", "warnings"},
	"berth get members":  {"endpoints", "hostfile", "peers"},

	"berth get assignments":  {"ps"},
	"berth get executors":    {"bhosts", "node status", "pbsnodes", "qhost", "sinfo"},
	"berth get reservations": {"bjobs", "gangs", "podgroups", "qstat", "squeue", "workloads"},
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

// noLabel is the hint for a command that would label an object.
const noLabel = "Berth has no command for labels: set 'labels' in the job file, and the attributes of an executor with " +
	"--attributes of its agent"

// absent are the words of other tools for what Berth does not do, with their hints.
var absent = map[string]string{
	"attach": noShell, "cp": noShell, "debug": noShell, "exec": noShell, "port-forward": noShell, "ssh": noShell,
	"alloc exec":  noShell,
	"job restart": noRestart, "reload": noRestart, "requeue": noRestart, "reschedule": noRestart, "restart": noRestart,
	"alloc restart": noRestart, "rollout restart": noRestart,
	"bresume": noPause, "bstop": noPause, "hold": noPause, "pause": noPause, "qhold": noPause, "qrls": noPause,
	"release": noPause, "resume": noPause, "suspend": noPause, "unpause": noPause,
	"annotate": noLabel, "label": noLabel,
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
	root := cmd.Root()
	if cmd == root {
		words = withKind(root, words)
		if words[0] == "scontrol" && len(words) > 1 {
			if line := updatedNodes(words[1:]); line != "" {
				return "did you mean '" + line + "'?"
			}
			if hint := suggestion(cmd, words[1:]); hint != "" {
				return hint
			}
		}
	}
	for n := min(2, len(words)); n > 0 && len(likely) == 0; n-- {
		word := strings.ToLower(strings.Join(words[:n], " "))
		if hint := absent[word]; hint != "" && cmd == root {
			return hint
		}
		if likely = meant(cmd, word, words[n:]); len(likely) > 0 || n < 2 {
			continue
		}
		if kind := kindOf(root, words[1]); kind != nil {
			likely = meant(cmd, strings.ToLower(words[0])+" "+kind.Name(), words[1:])
		}
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

// kindOf returns the command that lists the kind of a word, or nil if the word is none for a kind.
func kindOf(root *cobra.Command, word string) *cobra.Command {
	return child(child(root, "get"), strings.ToLower(word))
}

// withKind returns words of a command line with the form VERB KIND NAME in place of kubectl's form
// VERB KIND/NAME. kubectl removes a taint whose name ends with a hyphen.
func withKind(root *cobra.Command, words []string) []string {
	if len(words) < 2 {
		return words
	}
	words = slices.Clone(words)
	if isRemoval := func(word string) bool { return strings.HasSuffix(word, "-") }; words[0] == "taint" &&
		slices.ContainsFunc(words, isRemoval) {
		words[0] = "untaint"
		words = slices.DeleteFunc(words, isRemoval)
	}
	if len(words) < 2 {
		return words
	}
	return append(words[:1:1], splitKind(root, words[1:])...)
}

// splitKind returns arguments with KIND NAME in place of a leading KIND/NAME.
func splitKind(root *cobra.Command, args []string) []string {
	if kind, name, found := strings.Cut(args[0], "/"); found && kindOf(root, kind) != nil {
		return append([]string{kind, name}, args[1:]...)
	}
	return args
}

// updatedNodes returns the command line with the meaning of an update of nodes by scontrol, or "".
func updatedNodes(words []string) string {
	var nodes []string
	command := ""
	for _, word := range words {
		name, value, _ := strings.Cut(strings.ToLower(word), "=")
		switch {
		case name == "nodename":
			nodes = strings.Split(word[len(name)+1:], ",")
		case name == "state" && slices.Contains([]string{"down", "drain", "fail"}, value):
			command = "berth disable "
		case name == "state" && slices.Contains([]string{"idle", "resume", "undrain"}, value):
			command = "berth enable "
		}
	}
	if command == "" || len(nodes) == 0 {
		return ""
	}
	return command + quoted(nodes)
}

// meant returns the command lines with the meaning of a word. rest are the arguments after the word.
func meant(cmd *cobra.Command, word string, rest []string) (likely []string) {
	root := cmd.Root()
	for line, words := range habits {
		if slices.Contains(words, word) && (cmd == root || reads(find(root, line))) {
			likely = appendLine(likely, withArgs(root, line, rest))
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

// appendLine appends a command line unless it is empty.
func appendLine(lines []string, line string) []string {
	if line == "" {
		return lines
	}
	return append(lines, line)
}

// kindsOf are the kinds of objects that an argument of a command line may name.
var kindsOf = map[string][]string{
	"FILE": {"assignments", "jobs", "pools", "reservations", "skus"},
	"ID":   {"executors"},
	"JOB":  {"jobs", "reservations"},
	"":     {"assignments", "jobs", "reservations"}, // of a command that changes nothing
}

// withArgs returns a command line with the arguments of the user, if the command needs arguments: in
// place of the name in capitals. A list of kinds gets the kind, and a command that has no kinds only the
// names. If the command changes objects of other kinds, withArgs returns "".
func withArgs(root *cobra.Command, line string, rest []string) string {
	fields := strings.Fields(line)
	cmd := find(root, line)
	if len(rest) == 0 {
		return line
	}
	rest = splitKind(root, rest)
	last := fields[len(fields)-1]
	named := ""
	if strings.ToUpper(last) == last {
		named = last
	}
	switch own, kind := child(cmd, strings.ToLower(rest[0])), kindOf(root, rest[0]); {
	case own != nil && len(rest) == 1 && cmd.Name() == "describe" && kind != nil:
		return kind.CommandPath()
	case own != nil:
		line, rest = line+" "+own.Name(), rest[1:]
	case kind == nil:
	case slices.Contains(kindsOf[named], kind.Name()) && (named != "" || reads(cmd)):
		rest = rest[1:]
	case reads(cmd):
		return line
	default:
		return ""
	}
	if last == "ID" { // kubectl taint has the taints after the names
		rest = slices.DeleteFunc(slices.Clone(rest), func(arg string) bool { return strings.Contains(arg, "=") })
	}
	switch {
	case last == "FILE", strings.HasPrefix(last, "-"), len(rest) == 0:
		return line
	case named != "":
		line = strings.TrimSuffix(line, " "+last)
	case !reads(cmd):
		return line
	}
	if cmd.Args != nil && cmd.Args(cmd, rest) != nil {
		return strings.Join(fields, " ")
	}
	if usage := strings.Fields(cmd.Use); len(usage) == 1 && !cmd.HasSubCommands() {
		return line // it takes no arguments
	}
	return line + " " + quoted(rest)
}

// checkIDs returns an error if IDs of executors have a word for a kind, as the arguments of other tools:
// `node ex-1` or `node/ex-1`. An executor may have such a word as its ID.
func (a *app) checkIDs(ctx context.Context, c *client.Client, cmd *cobra.Command, ids []string) error {
	var names []string
	wrong, suggests := "", true
	for i, id := range ids {
		word, name, slash := strings.Cut(id, "/")
		kind := kindOf(cmd.Root(), word)
		if kind == nil || !slash && (i > 0 || len(ids) == 1) {
			names = append(names, id)
			continue
		}
		if !slash {
			ctx, cancel := a.limited(ctx)
			_, err := c.Executor(ctx, id)
			cancel()
			switch {
			case err == nil:
				names = append(names, id)
				continue
			case !fault.Is(err, fault.ReasonNotFound):
				return err
			}
		} else {
			names = append(names, name)
		}
		wrong, suggests = cmp.Or(wrong, id), suggests && kind.Name() == "executors"
	}
	if wrong == "" {
		return nil
	}
	err := usageError{fmt.Errorf("%q is not the ID of an executor: name only IDs", wrong), cmd.CommandPath(), ""}
	if suggests {
		line := []string{}
		cmd.Flags().Visit(func(flag *pflag.Flag) { line = append(line, "--"+flag.Name+"="+flag.Value.String()) })
		err.hint = "did you mean '" + cmd.CommandPath() + " " + quoted(append(names, line...)) + "'?"
	}
	return err
}

// misspelled returns the command lines whose command changes nothing and has similar letters.
func misspelled(cmd *cobra.Command, words []string) (likely []string) {
	cmd.SuggestionsMinimumDistance = 2 // letters that differ
	for _, name := range cmd.SuggestionsFor(words[0]) {
		if similar := child(cmd, name); similar != nil && reads(similar) {
			likely = appendLine(likely, withArgs(cmd.Root(), similar.CommandPath(), words[1:]))
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
	case cmd.Name() == "signal":
		hint = signalLine(args)
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
