package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth.dev/api/fault"
)

// A task may set the variables that the executor allows by name. The pattern "*" allows no
// variable that can load code.
func TestEnvironmentOfTasksIsAllowedByName(t *testing.T) {
	for _, c := range []struct {
		allow, name string
		want        bool
	}{
		{"", "KIND", false}, {"KIND", "KIND", true}, {"KIND", "KIN", false}, {"KIND", "kind", false},
		{"*", "KIND", true}, {"*", "PATH", true}, {"LD_*", "LD_PRELOAD", false},
		{"*", "LD_PRELOAD", false}, {"*", "LD_AUDIT", false}, {"*", "DYLD_INSERT_LIBRARIES", false},
		{"*", "GLIBC_TUNABLES", false},
		{"*", "BASH_ENV", false}, {"*", "ENV", false}, {"*", "PYTHONPATH", false}, {"*", "PERL5LIB", false},
		{"*", "RUBYOPT", false},
		{"*", "NODE_OPTIONS", false}, {"*", "ENVIRONMENT", true}, {"*", "NODE_OPTIONS_MORE", true},
		{"*", "BASH_FUNC_x%%", false}, {"*", "GCONV_PATH", false}, {"*", "LOCPATH", false}, {"*", "HOSTALIASES", false},
		{"*", "TERMINFO", false},
		{"*", "JAVA_TOOL_OPTIONS", false}, {"*", "JDK_JAVA_OPTIONS", false}, {"*", "_JAVA_OPTIONS", false},
		{"*", "JAVA_HOME", true},
		{"*", "PERLLIB", false}, {"*", "RUBYLIB", false}, {"*", "NODE_PATH", false}, {"*", "LUA_INIT_5_4", false},
		{"*", "LUA_PATH", false},
		{"*", "GIT_SSH_COMMAND", false}, {"*,GIT_SSH_COMMAND", "GIT_SSH_COMMAND", true}, {"*", "GIT_COMMIT", true},
		{"*,LD_PRELOAD", "LD_PRELOAD", true}, {"LD_PRELOAD", "LD_PRELOAD", true}, {"*,LD_PRELOAD", "LD_AUDIT", false},
		{"", "BERTH_JOB", true}, // Berth sets it and ignores the value of the task
	} {
		err := permitEnv(strings.Split(c.allow, ","), map[string]string{c.name: "x"})
		if (err == nil) != c.want {
			t.Errorf("%q allows %q: %v", c.allow, c.name, err)
		}
		if err != nil && (!fault.Is(err, fault.ReasonNotAllowed) || !strings.Contains(err.Error(), c.name)) {
			t.Errorf("%q: %v", c.name, err)
		}
	}
}

// If a task sets a variable that is not allowed, the agent refuses the worker before it
// creates a directory.
func TestUnlistedVariableIsRejected(t *testing.T) {
	dir := agentDir(t)
	a, _, _ := processAgent(t, dir)
	order := submit(0, 1, "true")
	order.Task.Env = map[string]string{"LD_PRELOAD": "./payload"}
	if _, err := trySubmit(t.Context(), a, order); !fault.Is(err, fault.ReasonNotAllowed) ||
		!strings.Contains(err.Error(), `"LD_PRELOAD"`) {
		t.Errorf("%v", err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(dir, "workers", "*", "*")); len(dirs) != 0 {
		t.Errorf("%v", dirs)
	}
}

// If a command is not on the list of allowed commands, the agent refuses it for that
// reason, whether the program exists or not.
func TestUnlistedCommandIsRejected(t *testing.T) {
	a, _, _ := processAgent(t, agentDir(t), programPath(t, "true"))
	for _, command := range []string{"false", "no-such-program", "/no/such/program", "./payload", "/"} {
		if _, err := trySubmit(t.Context(), a, submit(0, 1, command)); !fault.Is(err, fault.ReasonNotAllowed) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if err := NewFunctions(nil).Check(Spec{Command: "f"}); !fault.Is(err, fault.ReasonNotAllowed) {
		t.Errorf("a function: %v", err)
	}
}

// While a task runs, only the worker's user can read its secret parts. When the task ends,
// these parts are removed.
func TestSecretsAreDeletedWithTheWorker(t *testing.T) {
	dir := agentDir(t)
	a, c, _ := processAgent(t, dir)
	f := newFIFO(t)
	order := submit(0, 1, "sh", "-c", `ls -l "$BERTH_PAYLOAD_FILE"; cat "$BERTH_PAYLOAD_FILE"; read line <`+f.path+`; exit 3`, "argument-secret")
	order.Task.Env = map[string]string{"TOKEN": "env-secret"}
	order.Task.Payload = []byte("payload-secret\n")
	mustSubmit(t, a, order)
	worker := filepath.Join(dir, "workers", "job", "stage.0.1.100")
	payloads, _ := filepath.Glob(filepath.Join(worker, "payload*"))
	if len(payloads) != 1 || len(filepath.Base(payloads[0])) < len("payload-")+20 {
		t.Fatalf("the payload is %v", payloads)
	}
	for _, path := range []string{payloads[0], filepath.Join(worker, fileWorker)} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if info, err := os.Stat(payloads[0]); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the payload's mode is %v, %v", info.Mode(), err)
	}
	f.write(t, "go\n")
	c.awaitState(t, key(0), "FAILED")
	entries, err := os.ReadDir(worker)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == fileStdout {
			continue
		}
		text, err := os.ReadFile(filepath.Join(worker, e.Name()))
		if err != nil || strings.Contains(string(text), "secret") || strings.HasPrefix(e.Name(), filePayload) {
			t.Errorf("%s still has a secret: %s, %v", e.Name(), text, err)
		}
	}
	if out, err := os.ReadFile(filepath.Join(worker, fileStdout)); err != nil ||
		!strings.HasSuffix(string(out), "\npayload-secret\n") {
		t.Errorf("the worker read %q, %v", out, err)
	}
}

// If there is no space for another file, the secrets are removed from the plan in place.
// The plan is still readable afterwards.
func TestAPlanIsScrubbedInPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fileWorker)
	p := plan{Spec: Spec{UID: "1-1", Args: []string{"argument-secret"}, Env: map[string]string{"A": "env-secret"}},
		Env: []string{"A=env-secret"}}
	if err := writeJSON(path, p); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil { // prevents the creation of another file
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path+".new", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := scrub(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	var left plan
	if err != nil || strings.Contains(string(text), "secret") || readJSON(path, &left) != nil || left.Spec.UID != "1-1" {
		t.Errorf("%q, %v", text, err)
	}
}

// The report distinguishes a process that was killed by a signal from a process that exits
// with the corresponding exit code.
func TestAProcessEndedByASignalReportsTheSignal(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	mustSubmit(t, a, submit(0, 1, "sh", "-c", "kill -9 $$"))
	mustSubmit(t, a, submit(1, 1, "sh", "-c", "exit 137"))
	killed, exited := c.awaitState(t, key(0), "FAILED"), c.awaitState(t, key(1), "FAILED")
	if killed.GetSignal() != 9 || killed.GetExitCode() != 137 || killed.GetError() != "killed by signal 9 (SIGKILL)" {
		t.Errorf("killed: %v", killed)
	}
	if exited.GetSignal() != 0 || exited.GetExitCode() != 137 || exited.GetError() != "exited with 137" {
		t.Errorf("exited: %v", exited)
	}
}

// For any content of the journal file, the agent reads only valid tombstones and can append
// another one.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"job":"j","stage":"s","index":1,"number":2,"epoch":3,"at":"2026-01-01T00:00:00Z"}` + "\n"))
	f.Add([]byte(`{"job":"j","stage":"s","index":1,"number":2,"epoch":3,"at":"2026-01-01T00:00:00Z"}` + "\n" + `{"job":`))
	f.Add([]byte("\x00\x00\x00\n{}\n"))
	f.Add([]byte(`{"epoch":-1,"index":99999999999}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tombstones"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, kept, err := openJournal(dir)
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger("host", "", defaultTombstoneAge)
		for _, one := range kept {
			l.bury(one)
		}
		added := tombstone{identity: identity{Epoch: 7}}
		added.Job, added.Stage = "job", "stage"
		if err := j.append(added, kept); err != nil {
			t.Fatal(err)
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		again, read, err := openJournal(dir)
		if err != nil || len(read) != len(kept)+1 || read[len(kept)].identity != added.identity {
			t.Fatalf("%d are read, and were %d: %v", len(read), len(kept), err)
		}
		if err := again.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// For any content of worker.json, the agent adopts or skips the worker, and can remove the
// worker's secrets.
func FuzzWorkerJSON(f *testing.F) {
	f.Add([]byte(`{"Spec":{"Executor":"host","Worker":{"Job":"j","Stage":"s","ID":{"Index":1,"Number":1}},"Epoch":3,"UID":"1-1","Env":{"A":"b"},"Args":["x"]},"Path":"/bin/sh","Env":["A=b"],"Dir":"/","Payload":"payload-X"}`))
	f.Add([]byte(`{"Spec":null,"Payload":"../../etc/passwd"}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, text []byte) {
		root := t.TempDir()
		dir := filepath.Join(root, "workers", "j", "s.1.1.3")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		outside := filepath.Join(root, "payload-outside")
		for path, content := range map[string][]byte{filepath.Join(dir, fileWorker): text, outside: nil} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Mkfifo(filepath.Join(dir, pipeEvents), 0o600); err != nil {
			t.Fatal(err)
		}
		if scrub(dir) == nil {
			var p plan
			if err := readJSON(filepath.Join(dir, fileWorker), &p); err != nil || p.Env != nil || p.Spec.Env != nil ||
				p.Spec.Args != nil || p.Spec.Payload != nil {
				t.Errorf("secrets left: %+v, %v", p, err)
			}
		}
		if _, err := os.Stat(outside); err != nil {
			t.Error(err)
		}
		driver, err := NewProcess(ProcessConfig{Dir: root, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := driver.Adopt(nil, func(Spec, Exit) {})
		if err != nil || len(adopted) != 0 { // no keeper has claimed the worker
			t.Errorf("%v, %v", adopted, err)
		}
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
}
