package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/yamlfile"
)

// Bounds of a configuration file.
const (
	maxConfig      = 1 << 20
	maxContextName = 128
)

// configuration is the content of a configuration file.
type configuration struct {
	// Current is the name of the context that commands use by default.
	Current string `yaml:"current,omitempty"`
	// Contexts has the settings of each context, by the names of the flags without dashes.
	Contexts map[string]map[string]string `yaml:"contexts,omitempty"`
}

// configPath returns the path of the configuration file. It is empty if the user has no
// directory for configurations. BERTH_CONFIG is another file: that of a process.
func (s Streams) configPath() string {
	if path := s.Env("BERTH_CONTEXTS"); path != "" {
		return path
	}
	if s.ConfigDir == nil {
		return ""
	}
	dir, err := s.ConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "berth", "config.yaml")
}

// badConfig returns an error about a field of a configuration file.
func badConfig(path, field, format string, args ...any) error {
	return fault.New(fault.Invalid, fault.ReasonInvalid, "%s: %s: %s", path, field, fmt.Sprintf(format, args...))
}

// readConfig reads a configuration file. A file that does not exist has no contexts.
func readConfig(path string) (*configuration, error) {
	config := &configuration{Contexts: map[string]map[string]string{}}
	if path == "" {
		return config, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return config, nil
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "cannot read the configuration: %v", err)
	}
	defer file.Close() //nolint:errcheck // the file is only read
	// Another user who can write the file could direct a token to another gateway.
	if info, err := file.Stat(); err == nil && info.Mode().Perm()&0o022 != 0 {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid,
			"%s: other users can write the file (mode %04o); run 'chmod 600 %s'", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "cannot read the configuration: %v", err)
	}
	if len(text) > maxConfig {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "%s: is larger than %d bytes", path, maxConfig)
	}
	return config, config.parse(path, text)
}

// parse reads the text of a configuration file. The error has every field whose value is not a
// text, with its line, or the first field whose text is invalid.
func (c *configuration) parse(path string, text []byte) error {
	if problems := c.read(path, text); len(problems) > 0 {
		texts := make([]string, len(problems))
		for i, p := range problems {
			texts[i] = p.Error()
		}
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s", strings.Join(texts, "; "))
	}
	return c.check(path)
}

// read sets the fields to the texts in a configuration file.
func (c *configuration) read(path string, text []byte) (problems []yamlfile.Problem) {
	refuse := func(line int, field, format string, args ...any) {
		problems = append(problems,
			yamlfile.Problem{File: path, Line: line, Field: field, Text: fmt.Sprintf(format, args...)})
	}
	// below returns the entries of a mapping; it may have none.
	below := func(field string, e yamlfile.Entry, of string) (entries []yamlfile.Entry) {
		switch {
		case e.Value.Kind == yaml.MappingNode:
			var found []yamlfile.Problem
			entries, found = yamlfile.Entries(path, field, e.Value)
			problems = append(problems, found...)
		case !yamlfile.IsNull(e.Value):
			refuse(e.Line, field, "must be a mapping of %s, got %s", of, yamlfile.Kind(e.Value))
		}
		return entries
	}
	root, problems := yamlfile.Parse(path, "fields to values", text)
	for _, field := range root {
		switch field.Key {
		case "current":
			current, problem := yamlfile.Text(field.Value, "the name of a context")
			if problem != "" {
				refuse(field.Line, field.Key, "%s", problem)
			}
			c.Current = current
		case "contexts":
			for _, context := range below(field.Key, field, "names to settings") {
				path := yamlfile.Join(field.Key, context.Key)
				c.Contexts[context.Key] = map[string]string{}
				for _, setting := range below(path, context, "settings to texts") {
					value, problem := yamlfile.Text(setting.Value, "text")
					if problem != "" {
						refuse(setting.Line, yamlfile.Join(path, setting.Key), "%s", problem)
					}
					c.Contexts[context.Key][setting.Key] = value
				}
			}
		default:
			refuse(field.Line, field.Key, "is not a field; must be one of current, contexts")
		}
	}
	return problems
}

// check returns the first mistake.
func (c *configuration) check(path string) error {
	for _, p := range c.problems() {
		return badConfig(path, p.Field, "%s", p.Text)
	}
	return nil
}

// problems returns every mistake, without its place in the file.
func (c *configuration) problems() (list []yamlfile.Problem) {
	wrong := func(field, format string, args ...any) {
		list = append(list, yamlfile.Problem{Field: field, Text: fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
		field := "contexts." + name
		if !model.ValidName(name, maxContextName) {
			wrong(field, "must consist of at most %d letters, digits, '.', '_' and '-'", maxContextName)
		}
		settings := c.Contexts[name]
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if !slices.Contains(settingNames, key) {
				wrong(field+"."+key, "is not a field; must be one of %s", strings.Join(settingNames, ", "))
			}
		}
		if settings["gateway"] == "" {
			wrong(field+".gateway", "is required: HOST:PORT or a URL")
		} else {
			gateways := gatewayFlags{gateway: settings["gateway"]}
			security, err := gateways.security()
			if err == nil {
				_, err = gateways.addresses(security)
			}
			if err != nil {
				wrong(field+".gateway", "%s", fault.Of(err).Fields[0].Problem)
			}
		}
		if (settings["tls-cert"] == "") != (settings["tls-key"] == "") {
			wrong(field+".tls-cert", "must be set together with tls-key")
		}
	}
	if c.Current != "" && c.Contexts[c.Current] == nil {
		wrong("current", "%s", c.unknown(c.Current))
	}
	return list
}

// unknown describes that there is no context with a name.
func (c *configuration) unknown(name string) string {
	list := strings.Join(slices.Sorted(maps.Keys(c.Contexts)), ", ")
	return fmt.Sprintf("there is no context %q, only: %s", name, cmp.Or(list, "none"))
}

// write replaces a configuration file. Only its owner can read it. If write fails, the
// old file stays.
func (c *configuration) write(path string) error {
	if err := c.check(path); err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(c), encoder.Close(), os.MkdirAll(filepath.Dir(path), 0o700))
	if err == nil {
		err = replaceFile(path, text.Bytes())
	}
	if err != nil {
		return fault.New(fault.Precondition, fault.ReasonInvalid, "cannot write the configuration %s: %v", path, err)
	}
	return nil
}

// replaceFile writes a file under another name, with mode 0600, and renames it.
func replaceFile(path string, text []byte) error {
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(text)
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}
