package process

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// EnvPrefix is the prefix of the environment variable of every option. For example,
// BERTH_ETCD_ENDPOINTS sets --etcd-endpoints.
const EnvPrefix = "BERTH"

// Option is one setting of a process, as the reference documentation lists it. Name is
// the name of the flag and the key in the configuration file. A field of a configuration
// struct declares an option with the tags `mapstructure:"name"` and `usage:"…"`.
type Option struct {
	Name, Env, Usage, Default string
}

// Options lists the options of a configuration struct and its embedded structs, in the order of
// the fields.
func Options(config any) []Option {
	var list []Option
	eachOption(reflect.ValueOf(config), func(name, usage string, value reflect.Value) {
		list = append(list, Option{name, envName(name), usage, fmt.Sprint(value.Interface())})
	})
	return list
}

// AddFlags declares a flag for every option of a configuration struct. The values of the fields
// are the defaults.
func AddFlags(flags *pflag.FlagSet, config any) {
	eachOption(reflect.ValueOf(config), func(name, usage string, value reflect.Value) {
		usage += " [" + envName(name) + "]"
		switch v := value.Interface().(type) {
		case string:
			flags.String(name, v, usage)
		case bool:
			flags.Bool(name, v, usage)
		case int:
			flags.Int(name, v, usage)
		case float64:
			flags.Float64(name, v, usage)
		case time.Duration:
			flags.Duration(name, v, usage)
		case []string:
			flags.StringSlice(name, v, usage)
		default:
			panic(fmt.Sprintf("process: option %s has type %T", name, v))
		}
	})
}

// Load sets each option of config from the first source that has a value. The order is:
// the command line, the environment, the YAML file, the default of the flag. If file is
// empty, Load reads no file. It returns an error for an unknown key and for a value of
// the wrong type; the error names the key or the option.
func Load(flags *pflag.FlagSet, file string, config any) error {
	v := viper.New()
	v.SetEnvPrefix(EnvPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	var err error
	eachOption(reflect.ValueOf(config), func(name, _ string, _ reflect.Value) {
		if e := v.BindPFlag(name, flags.Lookup(name)); e != nil {
			err = e
		}
	})
	if err != nil {
		return fault.New(fault.Internal, fault.ReasonInternal, "an option has no flag").Because(err)
	}
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return badConfig(nil, "cannot read the configuration file: %v", err)
		}
		defer f.Close() //nolint:errcheck // the file is only read
		v.SetConfigType("yaml")
		if err := v.ReadConfig(f); err != nil {
			return badConfig(nil, "%s is not valid YAML: %v", file, err)
		}
		if unknown := unknownKeys(v, flags); len(unknown) > 0 {
			return badConfig(nil, "%s: unknown key %s", file, strings.Join(unknown, ", "))
		}
	}
	if err := v.UnmarshalExact(config); err != nil {
		if at := decoded.FindStringSubmatch(err.Error()); at != nil && flags.Lookup(at[1]) != nil {
			if wanted := wantedOf[flags.Lookup(at[1]).Value.Type()]; wanted != "" {
				return badConfig(nil, "%s: must be %s; check %s and the configuration file", at[1], wanted,
					envName(at[1])).Because(err)
			}
		}
		return badConfig(nil, "an option has the wrong type: %v", err)
	}
	err = nil
	eachOption(reflect.ValueOf(config), func(name, _ string, value reflect.Value) {
		if name == "cluster" {
			err = CheckCluster(value.String())
		}
	})
	return err
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

// decoded matches the name of the option in an error of the decoder.
var decoded = regexp.MustCompile(`'([a-z-]+)' `)

// maxCluster is the maximum length of a cluster name, in bytes.
const maxCluster = 128

// unknownKeys returns the keys of the file that are not options.
func unknownKeys(v *viper.Viper, flags *pflag.FlagSet) []string {
	var unknown []string
	for _, key := range v.AllKeys() {
		if flags.Lookup(key) == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return unknown
}

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

// eachOption visits the options of a configuration struct.
func eachOption(config reflect.Value, visit func(name, usage string, value reflect.Value)) {
	config = reflect.Indirect(config)
	for i := range config.NumField() {
		field := config.Type().Field(i)
		name := field.Tag.Get("mapstructure")
		switch {
		case strings.HasSuffix(name, ",squash"):
			eachOption(config.Field(i), visit)
		case name != "" && name != "-":
			visit(name, field.Tag.Get("usage"), config.Field(i))
		}
	}
}
