package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// units has the units of systemd in the repository, and the process that each one runs.
var units = map[string]string{
	"berth-agent.service": "agent", "berth-gateway.service": "gateway", "berth-registry.service": "registry",
	"berth-executor-state.service": "executor-state", "berth-assigner.service": "assigner",
}

// unit parses a file of systemd strictly, and returns the values of its settings by section
// and name.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	settings, section := map[string]string{}, ""
	setting := regexp.MustCompile(`^([A-Z][A-Za-z]+)=(.*)$`)
	for n, line := range strings.Split(read(t, name), "\n") {
		found := setting.FindStringSubmatch(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case line == "[Unit]" || line == "[Service]" || line == "[Install]":
			section = line
		case found == nil || section == "":
			t.Errorf("%s:%d: %q is not a setting", name, n+1, line)
		default:
			key := section + found[1]
			if _, twice := settings[key]; twice {
				t.Errorf("%s:%d: %s occurs twice", name, n+1, found[1])
			}
			settings[key] = found[2]
		}
	}
	return settings
}

// TestUnits checks the promises of the units, and that their files of options name options
// of the process. If systemd-analyze is installed, it must accept the units.
func TestUnits(t *testing.T) {
	installed, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(installed) != len(units) {
		t.Fatalf("the units are %v (%v), want %v", installed, err, units)
	}
	for name, process := range units {
		settings := unit(t, "deploy/systemd/"+name)
		command := "/usr/local/bin/berth " + process
		want := map[string]string{
			"Type": "notify", "TimeoutStartSec": "infinity", "Restart": "always", "NoNewPrivileges": "yes", "User": "berth",
			"EnvironmentFile": "/etc/berth/" + process + ".env", "CapabilityBoundingSet": "", "ProtectSystem": "strict",
			"ExecReload": "/bin/kill -HUP $MAINPID",
		}
		if process == "agent" {
			command = "/usr/local/bin/berth-agent"
			want["User"], want["KillMode"], want["OOMPolicy"], want["ProtectSystem"] = "berth-agent", "process", "continue",
				"full"
			// The capabilities that the reference lists for --worker-uids.
			want["AmbientCapabilities"] = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETPCAP CAP_SETUID"
			want["CapabilityBoundingSet"] = want["AmbientCapabilities"]
			for _, hides := range []string{"PrivateTmp", "PrivateDevices", "ProtectClock", "ProtectProc"} {
				if _, set := settings["[Service]"+hides]; set {
					t.Errorf("%s sets %s", name, hides)
				}
			}
		}
		want["ExecStart"] = command
		for key, value := range want {
			if settings["[Service]"+key] != value {
				t.Errorf("%s: %s=%s, want %s", name, key, settings["[Service]"+key], value)
			}
		}
		if settings["[Service]LimitNOFILE"] == "" || settings["[Install]WantedBy"] != "multi-user.target" {
			t.Errorf("%s has no limit of open files, or is not started with the host", name)
		}

		checkEnvironment(t, process, process+".env", read(t, "deploy/systemd/"+process+".env"))
	}
	for name, value := range unit(t, "deploy/systemd/without-worker-uids.conf") {
		if value != "" || unit(t, "deploy/systemd/berth-agent.service")[name] == "" {
			t.Errorf("the drop-in sets %s=%s, want a reset of a setting of the unit", name, value)
		}
	}
}

// checkEnvironment checks that each line of a file of options sets an option of a process,
// and so does each example in a comment.
func checkEnvironment(t *testing.T, process, name, text string) {
	t.Helper()
	known := options(t, process)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		variable, value, _ := strings.Cut(strings.TrimPrefix(line, "#"), "=")
		if line != "" && !strings.HasPrefix(line, "# ") && (!strings.Contains(known, "`"+variable+"`") || value == "") {
			t.Errorf("%s: %q sets no option of %s", name, line, process)
		}
	}
}

// TestCloudInit checks the configuration of cloud-init in the guide: the options of the
// agent, the syntax of the script, and that the script installs what it downloads.
func TestCloudInit(t *testing.T) {
	const guide = "docs/how-to/turn-hosts-into-executors.md"
	_, text, _ := strings.Cut(read(t, guide), "```yaml\n## template: jinja\n#cloud-config\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("the guide has no configuration of cloud-init")
	}
	var config struct {
		Files []struct{ Path, Permissions, Content string } `yaml:"write_files"`
		Run   [][]string                                    `yaml:"runcmd"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(regexp.MustCompile(`\{\{[^{}]+\}\}`).ReplaceAllString(text, "metadata")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&config); err != nil {
		t.Fatal(err)
	}
	if len(config.Files) != 2 || len(config.Run) != 1 || config.Run[0][0] != config.Files[1].Path ||
		config.Files[0].Path != unit(t, "deploy/systemd/berth-agent.service")["[Service]EnvironmentFile"] {
		t.Fatalf("%+v", config)
	}
	checkEnvironment(t, "agent", guide, config.Files[0].Content)
	script := config.Files[1].Content
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(script)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	installed := regexp.MustCompile(`apt-get install .* \./(\S+)`).FindStringSubmatch(script)
	if installed == nil || !regexp.MustCompile(`for file in [^;]*\b`+regexp.QuoteMeta(installed[1])).MatchString(script) {
		t.Errorf("the script installs %q and does not download it", installed)
	}
}

// TestUnitsAreAccepted checks the units with systemd's own parser.
func TestUnitsAreAccepted(t *testing.T) {
	dir := t.TempDir()
	args := []string{"verify"}
	for name := range units {
		// The program need not be installed on this machine.
		text := strings.ReplaceAll(read(t, "deploy/systemd/"+name), "/usr/local/bin/berth", berth(t))
		text = strings.ReplaceAll(text, berth(t)+"-agent", berth(t))
		args = append(args, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("systemd-analyze is not installed")
	}
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
