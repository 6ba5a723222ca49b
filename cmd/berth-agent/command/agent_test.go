package command

import (
	"os"
	"path/filepath"
	"testing"

	"berth.dev/api/fault"
)

// The agent refuses to start with a list of commands or a range of user IDs that is not
// valid. The error names the option.
func TestAgentRefusesOptions(t *testing.T) {
	hidden := filepath.Join(t.TempDir(), "hidden")
	if err := os.Mkdir(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*AgentConfig)
		option string
	}{
		"a name":         {func(a *AgentConfig) { a.Allow = []string{"sh"} }, "--allow"},
		"no range":       {func(a *AgentConfig) { a.WorkerUIDs = "200000" }, "--worker-uids"},
		"root":           {func(a *AgentConfig) { a.WorkerUIDs = "0-10" }, "--worker-uids"},
		"an empty range": {func(a *AgentConfig) { a.WorkerUIDs = "200001-200000" }, "--worker-uids"},
		"a large range":  {func(a *AgentConfig) { a.WorkerUIDs = "200000-300000" }, "--worker-uids"},
		"unreachable (or no privileges)": {func(a *AgentConfig) {
			a.WorkerUIDs, a.Dir = "200000-200999", filepath.Join(hidden, "dir")
		}, "--worker-uids"},
	} {
		config := agentDefaults()
		config.Dir, config.Listen = t.TempDir(), "127.0.0.1:0"
		c.change(&config)
		err := runAgent(t.Context(), config)
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != c.option {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDirectory checks that the directory of an agent is absolute and does not depend on the
// working directory by default.
func TestDirectory(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		configured, state, home string
		uid                     int
		want                    string
	}{
		"absolute":         {"/srv/agent", "/state", "/home/a", 0, "/srv/agent"},
		"relative":         {"agent", "/state", "/home/a", 0, filepath.Join(here, "agent")},
		"root":             {"", "/state", "/root", 0, "/var/lib/berth-agent"},
		"user":             {"", "", "/home/a", 7, "/home/a/.local/state/berth-agent"},
		"XDG_STATE_HOME":   {"", "/state", "/home/a", 7, "/state/berth-agent"},
		"a relative state": {"", "state", "/home/a", 7, "/home/a/.local/state/berth-agent"},
		"nothing is set":   {"", "", "", 7, ""},
	} {
		env := map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}
		got, err := Directory("--dir", "berth-agent", c.configured, c.uid, func(key string) string { return env[key] })
		if got != c.want || (err == nil) != (c.want != "") || err != nil && fault.Of(err).Fields[0].Name != "--dir" {
			t.Errorf("%s: %q %v, want %q", name, got, err, c.want)
		}
	}
}
