package process

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/yamlfile"
)

// EnvPrefix is the prefix of the environment variable of every option. For example,
// BERTH_ETCD_ENDPOINTS sets --etcd-endpoints.
const EnvPrefix = "BERTH"

// Option is one setting of a process, as the reference documentation lists it. Name is
// the name of the flag and the key in the configuration file. A field of a configuration
// struct declares an option with the tags `mapstructure:"name"` and `usage:"…"`. More tags
// restrict the values that a user may set; they do not apply to the default:
//
//   - `form:"…"`: the form of a text, or of each item of a list; see forms
//   - `least:"…"` and `most:"…"`: the range of a number or a duration
//   - `empty:"…"`: the meaning of an empty text, although the default is not empty
type Option struct {
	Name, Env, Usage, Default string
	// Type is string, bool, int, float, duration or list.
	Type string
	// Form is the form of a text, or of each item of a list: a key of forms. It is empty if
	// every text is accepted.
	Form string
	// Least and Most are the range of a number or a duration; empty for no limit.
	Least, Most string

	// mayBeEmpty reports whether an empty text or list is accepted.
	mayBeEmpty bool
	value      reflect.Value
}

// Options lists the options of a configuration struct and its embedded structs, in the order of
// the fields.
func Options(config any) []Option { return optionsOf(reflect.ValueOf(config)) }

// optionsOf returns the options of a configuration struct. The values of the fields are the
// defaults.
func optionsOf(config reflect.Value) (list []Option) {
	config = reflect.Indirect(config)
	for i := range config.NumField() {
		field, value := config.Type().Field(i), config.Field(i)
		name := field.Tag.Get("mapstructure")
		switch {
		case strings.HasSuffix(name, ",squash"):
			list = append(list, optionsOf(value)...)
		case name != "" && name != "-":
			o := Option{
				Name: name, Env: envName(name), Usage: field.Tag.Get("usage"), Default: fmt.Sprint(value.Interface()),
				Type: typeName(name, value), Form: field.Tag.Get("form"),
				Least: field.Tag.Get("least"), Most: field.Tag.Get("most"), value: value,
			}
			o.mayBeEmpty = field.Tag.Get("empty") != "" || value.IsZero() || o.Type == typeList && value.Len() == 0
			list = append(list, o)
		}
	}
	return list
}

// Load sets each option of config from the first source that has a value. The order is:
// the command line, the environment, the YAML file, the default of the flag. An empty variable
// has no value. If file is empty, Load reads no file. Afterwards every option that a source has
// set is a changed flag.
//
// No value is converted: a text must have the form of the option's type, whatever its source.
// If config has a method Check() error, Load calls it. The error has every problem, each with its
// source, the option and the accepted form. If config has a method Doubts() error, only CheckFile calls
// it: it returns what is valid and probably a mistake.
func Load(flags *pflag.FlagSet, file string, config any) error {
	problems, err := load(flags, file, config, os.LookupEnv, source{})
	if err != nil {
		return err
	}
	return asError(slices.DeleteFunc(problems, func(p problem) bool { return p.doubt }))
}

// asError returns the problems as one error; nil without one.
func asError(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	f := &fault.Error{Kind: fault.Invalid, Reason: problems[0].reason}
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Error())
		if p.Field != "" {
			f.Fields = append(f.Fields, fault.Field{Name: p.Field, Problem: p.Text})
		}
		if p.reason != f.Reason {
			f.Reason = fault.ReasonInvalid
		}
	}
	f.Message = strings.Join(texts, "; ")
	return f
}

// problem is a mistake in a setting. File is the file or the name of the variable; it is empty
// for a flag.
type problem struct {
	yamlfile.Problem
	reason fault.Reason
	// unknown is set if the key is not an option.
	unknown bool
	// combination is set if the value is valid, but not together with those of other options.
	combination bool
	// doubt is set if the value is valid and probably a mistake.
	doubt bool
}

// source is where the value of an option is from: a line of a file, a variable, or neither for a
// flag.
type source struct {
	file string
	line int
}

// problem returns a problem of an option.
func (s source) problem(option, text string) problem {
	p := yamlfile.Problem{File: s.file, Line: s.line, Field: option, Text: text}
	if s.file == "" {
		p.Field = "--" + option
	}
	return problem{Problem: p, reason: fault.ReasonInvalid}
}

// load does the work of Load. lookup returns the variables of the environment. unset is the
// source of options that no source has set.
func load(flags *pflag.FlagSet, file string, config any, lookup func(string) (string, bool), unset source) ([]problem,
	error) {
	entries, problems, err := readFile(flags, file)
	if err != nil {
		return nil, err
	}
	sources, wrong := map[string]source{}, map[string]bool{}
	for _, o := range optionsOf(reflect.ValueOf(config)) {
		flag := flags.Lookup(o.Name)
		if flag == nil {
			return nil, fault.New(fault.Internal, fault.ReasonInternal, "the option %s has no flag", o.Name)
		}
		var from source
		var mistake string
		variable, inEnv := lookup(o.Env)
		switch entry, inFile := entries[o.Name]; {
		case flag.Changed:
			mistake = o.setFlag(flag)
		case inEnv && variable != "":
			from.file = o.Env
			mistake = o.setText(variable)
		case inFile:
			from = source{file, entry.Line}
			mistake = o.setNode(entry.Value)
		default:
			continue
		}
		flag.Changed = true
		sources[o.Name] = from
		if mistake == "" {
			mistake = o.check()
		}
		if mistake != "" {
			wrong[o.Name] = true
			problems = append(problems, from.problem(o.Name, mistake))
		}
	}
	problems = append(problems, checkAll(config, sources, wrong, unset, len(problems) > 0)...)
	if doubted, can := config.(interface{ Doubts() error }); can {
		for _, p := range problemsOf(doubted.Doubts(), sources, wrong, unset, len(problems) > 0) {
			p.doubt = true
			problems = append(problems, p)
		}
	}
	problems = append(problems, sharedListeners(optionsOf(reflect.ValueOf(config)), sources, wrong, unset)...)
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return problems, nil
}

// readFile returns the entries of a file that are options, by name, and the problems of the
// others. It returns an error if it cannot read the file.
func readFile(flags *pflag.FlagSet, file string) (map[string]yamlfile.Entry, []problem, error) {
	if file == "" {
		return nil, nil, nil
	}
	text, err := yamlfile.Read(file)
	if err != nil {
		return nil, nil, badConfig(nil, "--config: cannot read the configuration file: %v", err)
	}
	list, found := yamlfile.Parse(file, "options to values, such as log-level: warn", text)
	var problems []problem
	for _, p := range found {
		problems = append(problems, problem{Problem: p, reason: fault.ReasonInvalid})
	}
	entries := map[string]yamlfile.Entry{}
	for _, e := range list {
		if flags.Lookup(e.Key) == nil || notInFile[e.Key] {
			p := yamlfile.Problem{File: file, Line: e.Line, Field: e.Key, Text: "unknown key" + similar(flags, e.Key)}
			problems = append(problems, problem{Problem: p, reason: fault.ReasonInvalid, unknown: true})
			continue
		}
		entries[e.Key] = e
	}
	return entries, problems, nil
}

// notInFile has the flags of a process that are not options.
var notInFile = map[string]bool{"config": true, "help": true}

// similar suggests the option whose name differs only in case, or in other separators.
func similar(flags *pflag.FlagSet, key string) (hint string) {
	fold := strings.NewReplacer("_", "-", " ", "-", ".", "-")
	wanted := strings.ReplaceAll(fold.Replace(strings.ToLower(strings.TrimLeft(key, "-"))), "-", "")
	flags.VisitAll(func(flag *pflag.Flag) {
		if !notInFile[flag.Name] && strings.ReplaceAll(flag.Name, "-", "") == wanted {
			hint = "; did you mean " + flag.Name + "?"
		}
	})
	return hint
}

// checkAll calls the method Check of config and assigns its errors to the sources of their
// options. It omits errors about options that are wrong already. If there are other problems, it
// also omits errors about options that no source has set, because they may be consequences.
func checkAll(config any, sources map[string]source, wrong map[string]bool, unset source,
	consequences bool) (problems []problem) {
	checked, can := config.(interface{ Check() error })
	if !can {
		return nil
	}
	return problemsOf(checked.Check(), sources, wrong, unset, consequences)
}

// problemsOf assigns the errors about options to the sources of the options.
func problemsOf(all error, sources map[string]source, wrong map[string]bool, unset source,
	consequences bool) (problems []problem) {
	for _, err := range joined(all) {
		f := fault.Of(err)
		if len(f.Fields) != 1 {
			problems = append(problems, problem{Problem: yamlfile.Problem{File: unset.file, Text: f.Message}, reason: f.Reason})
			continue
		}
		option := strings.TrimPrefix(f.Fields[0].Name, "--")
		from, isSet := sources[option]
		if wrong[option] || !isSet && consequences {
			continue
		}
		if !isSet {
			from = unset
		}
		p := from.problem(option, f.Fields[0].Problem)
		p.reason, p.combination = f.Reason, f.Meta[fault.MetaCombination] != ""
		problems = append(problems, p)
	}
	return problems
}

// sharedListeners returns a problem for each option with the same listen address as an earlier option.
func sharedListeners(options []Option, sources map[string]source, wrong map[string]bool,
	unset source) (found []problem) {
	first := map[string]Option{}
	for _, o := range options {
		if o.Form != "listen" || wrong[o.Name] {
			continue
		}
		address := fmt.Sprint(o.value.Interface())
		host, port, err := net.SplitHostPort(address)
		if err != nil || port == "0" {
			continue
		}
		key := net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
		earlier, taken := first[key]
		if !taken {
			first[key] = o
			continue
		}
		if _, isSet := sources[o.Name]; !isSet {
			o, earlier = earlier, o
		}
		from, isSet := sources[o.Name]
		if !isSet {
			from = unset
		}
		p := from.problem(o.Name, fmt.Sprintf("must differ from --%s, got %s for both", earlier.Name, address))
		p.combination = true
		found = append(found, p)
	}
	return found
}

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	var list interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &list):
		return []error{err}
	}
	var all []error
	for _, one := range list.Unwrap() {
		all = append(all, joined(one)...)
	}
	return all
}

// CheckCluster returns an error if the name of a cluster is invalid. The name is a part
// of every key in etcd, so the rules for all names apply.
func CheckCluster(name string) error {
	if !model.WellNamed(name) {
		return fault.BadField(fault.ReasonBadName, "--cluster",
			"must be letters, digits, '.', '_' and '-', the first a letter or digit, got %q", name)
	}
	if len(name) < 1 || len(name) > maxCluster {
		return fault.BadField(fault.ReasonBadName, "--cluster", "must be 1 to %d bytes long, got %d", maxCluster, len(name))
	}
	return nil
}

// maxCluster is the maximum length of a cluster name, in bytes.
const maxCluster = 128

func badConfig(cause error, format string, args ...any) *fault.Error {
	f := fault.New(fault.Invalid, fault.ReasonInvalid, format, args...)
	if cause != nil {
		return f.Because(cause)
	}
	return f
}

func envName(option string) string {
	return EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}
