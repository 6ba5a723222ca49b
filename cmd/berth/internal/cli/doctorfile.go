package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/cmd/berth/internal/doctor"
	"berth.dev/pkg/access"
	"berth.dev/pkg/process"
	"berth.dev/pkg/yamlfile"
)

// configKind is a kind of configuration file.
type configKind struct {
	// name is the name of the process, or of the kind of file.
	name string
	// of describes the kind.
	of    string
	check func(file string) (process.FileCheck, error)
}

// processOrder has the names of the processes that other processes need. If a file could be for
// several processes, the first one counts.
var processOrder = []string{"registry", "executor-state", "assigner", "gateway", "agent", "cell", "dev"}

// configKinds returns the kinds of configuration files that this program can check.
func (a *app) configKinds(root *cobra.Command) (kinds []configKind) {
	for _, cmd := range root.Commands() {
		if _, isProcess, _ := process.CheckFile(cmd, ""); isProcess {
			check := func(file string) (process.FileCheck, error) {
				check, _, err := process.CheckFile(cmd, file)
				return check, err
			}
			kinds = append(kinds, configKind{cmd.Name(), "the configuration of " + cmd.CommandPath(), check})
		}
	}
	rank := func(k configKind) int {
		if i := slices.Index(processOrder, k.name); i >= 0 {
			return i
		}
		return len(processOrder)
	}
	kinds = append(kinds, configKind{"access", "an access file", checkAccess},
		configKind{"contexts", "the contexts of a user", checkContexts})
	slices.SortStableFunc(kinds, func(a, b configKind) int { return cmp.Compare(rank(a), rank(b)) })
	return kinds
}

// checkAccess checks an access file.
func checkAccess(file string) (process.FileCheck, error) {
	problems, err := access.CheckFile(file)
	if err != nil {
		return process.FileCheck{}, cannotRead(err)
	}
	return fileCheck(file, problems, "tokens", "issuers", "tenants")
}

// checkContexts checks a file with contexts.
func checkContexts(file string) (process.FileCheck, error) {
	text, err := yamlfile.Read(file)
	if err != nil {
		return process.FileCheck{}, cannotRead(err)
	}
	c := &configuration{Contexts: map[string]map[string]string{}}
	problems := c.read(file, text)
	if len(problems) == 0 {
		lineOf := yamlfile.Lines(text)
		for _, p := range c.problems() {
			p.File, p.Line = file, lineOf(p.Field)
			problems = append(problems, p)
		}
	}
	return fileCheck(file, problems, "current", "contexts")
}

func cannotRead(err error) error {
	return fault.New(fault.Invalid, fault.ReasonInvalid, "--config: cannot read the configuration file: %v", err)
}

// fileCheck returns the result of the check of a file whose fields have the names.
func fileCheck(file string, problems []yamlfile.Problem, names ...string) (process.FileCheck, error) {
	check := process.FileCheck{Problems: problems}
	text, err := yamlfile.Read(file)
	entries, _ := yamlfile.Parse(file, "", text)
	for _, e := range entries {
		if slices.Contains(names, e.Key) {
			check.Set++
		} else {
			check.Unknown++
		}
	}
	return check, err
}

// kindNames returns the names of the kinds.
func kindNames(kinds []configKind) []string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.name
	}
	return names
}

// checkConfig checks a configuration file. Without a service, the name of the file selects the
// kind, such as agent.yaml, and otherwise the keys do.
func (a *app) checkConfig(cmd *cobra.Command, file, service, output string) error {
	kinds := a.configKinds(cmd.Root())
	name := cmp.Or(service, strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), "berth-"))
	i := slices.IndexFunc(kinds, func(k configKind) bool { return k.name == name })
	if i < 0 && service != "" {
		return fault.BadField(fault.ReasonInvalid, "--service", "must be one of %s, got %q",
			strings.Join(kindNames(kinds), ", "), service)
	}
	var chosen configKind
	var result process.FileCheck
	for j, kind := range kinds {
		if i >= 0 && j != i {
			continue
		}
		check, err := kind.check(file)
		if err != nil {
			return err
		}
		if chosen.name == "" || cmp.Or(cmp.Compare(check.Unknown, result.Unknown),
			cmp.Compare(len(check.Problems), len(result.Problems))) < 0 {
			chosen, result = kind, check
		}
	}
	var checks []doctor.Check
	for _, p := range result.Problems {
		checks = append(checks, doctor.Check{Name: "config", Verdict: doctor.Failure, Seen: p.Error()})
	}
	for _, p := range result.Warnings {
		checks = append(checks, doctor.Check{Name: "config", Verdict: doctor.Warning, Seen: p.Error(),
			Do: "change it here, unless a flag or a variable of the process does"})
	}
	if len(result.Problems) == 0 {
		checks = append(checks, doctor.Check{Name: "config", Verdict: doctor.OK,
			Seen: fmt.Sprintf("%s is valid as %s: %s set", file, chosen.of, english.Plural(result.Set, "key", ""))})
	}
	err := a.value(output, map[string][]doctor.Check{"checks": checks}, show.Checks(checks), show.CheckNames(checks))
	if n := len(result.Problems); err == nil && n > 0 {
		text := fmt.Sprintf("%s has %d problems as %s", file, n, chosen.of)
		if n == 1 {
			text = fmt.Sprintf("%s has a problem as %s", file, chosen.of)
		}
		if service == "" {
			text += "; --service names another process"
		}
		return fault.New(fault.Precondition, "", "%s", text)
	}
	return err
}
