package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shell is the terminal of a reader: one bash that executes the commands of a document.
// Directories, variables and background jobs stay from one command to the next.
type shell struct {
	cmd   *exec.Cmd
	home  string
	input io.WriteCloser
	lines chan string
}

// answered begins the line that the shell prints after a command, with its exit code.
const answered = "--- the command has ended with "

// startShell starts a shell in the root of the repository. Its home is a new directory, and
// its path has the programs berth and etcd. The gateway of berth is the given one. The
// command starts a bash.
func startShell(t *testing.T, gateway string, command ...string) (*shell, error) {
	at, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	if at, err = filepath.Abs(at); err != nil {
		return nil, err
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return nil, err
	}
	cache := strings.Fields(string(caches))
	s := &shell{cmd: exec.Command(command[0], command[1:]...), home: t.TempDir(), lines: make(chan string)}
	s.cmd.Dir = at
	s.cmd.Env = append(os.Environ(), "HOME="+s.home, "PWD="+at, "BERTH_GATEWAY="+gateway,
		"PATH="+filepath.Dir(berth(t))+":"+os.Getenv("PATH"), "GOCACHE="+cache[0], "GOMODCACHE="+cache[1])
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.lines)
		for text := bufio.NewScanner(output); text.Scan(); {
			s.lines <- text.Text()
		}
	}()
	t.Cleanup(s.stop)
	// When its input ends, the shell ends its jobs.
	_, err = fmt.Fprintln(s.input, "exec 2>&1; set -m; trap 'kill -9 $(jobs -p)' EXIT; trap 'code=$?' ERR")
	return s, err
}

// run executes a command and returns what it prints. It fails unless the exit code of each of
// its lines is 0.
func (s *shell) run(ctx context.Context, command string) (string, error) {
	// A command must not read the commands that follow it. Like the prompt of an interactive
	// shell, jobs removes ended jobs, so that their numbers are used again.
	if _, err := fmt.Fprintf(s.input, "jobs > /dev/null\ncode=0\n{\n%s\n} < /dev/null\nprintf '\\n%s%%d\\n' $code\n", command, answered); err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		select {
		case line, open := <-s.lines:
			if code, ended := strings.CutPrefix(line, answered); ended {
				if code != "0" {
					return text.String(), fmt.Errorf("exit code %s", code)
				}
				return text.String(), nil
			}
			if !open {
				return text.String(), fmt.Errorf("the shell has exited")
			}
			text.WriteString(line + "\n")
		case <-ctx.Done():
			return text.String(), ctx.Err()
		}
	}
}

// stop ends the shell, its jobs, and a command that did not return.
func (s *shell) stop() {
	s.input.Close()
	for range s.lines { // the jobs may still print
	}
	s.cmd.Wait() //nolint:errcheck // the exit code is that of the trap
	// Workers outlive their agents. If a command failed, the document has not ended them.
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environments {
		text, _ := os.ReadFile(name)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil &&
			strings.Contains(string(text), "HOME="+s.home+"\x00") {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
	}
}

// parseShell returns the commands in the sh blocks of a document whose commands are those
// of a shell. A command may have several lines, such as a here-document. It ends before the
// lines that it prints, or with its block.
func parseShell(text string) ([]step, error) {
	var steps []step
	command, first, inside := []string(nil), 0, false
	end := func(expect []expectation) {
		if last := len(command) - 1; last > 0 && len(expect) > 0 && expect[0].within > 0 {
			// Only the last line is repeated until the answer is the documented one.
			steps = append(steps, step{line: first, command: strings.Join(command[:last], "\n")})
			command, first = command[last:], first+last
		}
		if command != nil {
			steps = append(steps, step{line: first, command: strings.Join(command, "\n"), expect: expect})
			command = nil
		} else if expect != nil && len(steps) > 0 {
			last := &steps[len(steps)-1]
			last.expect = append(last.expect, expect...)
		}
	}
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, fence):
			end(nil)
			inside = line == fence+"sh"
		case !inside:
		case strings.HasPrefix(line, arrow):
			e, err := parseExpectation(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			end([]expectation{e})
		default:
			if command == nil {
				first = i + 1
			}
			command = append(command, line)
		}
	}
	return steps, nil
}

// openTerminal starts the shell in which a document is executed.
func (w *runner) openTerminal() (err error) {
	if w.real != "" {
		w.terminal, err = startShell(w.t, w.real, "bash", "--norc")
		return err
	}
	// The document starts all processes itself, at fixed addresses. A network namespace keeps
	// these from other processes of the machine.
	isolated := []string{"unshare", "--map-root-user", "--net"}
	up := []string{"ip", "link", "set", "lo", "up"}
	if out, err := exec.Command(isolated[0], append(isolated[1:], up...)...).CombinedOutput(); err != nil {
		w.t.Skipf("this machine permits no network namespaces: %v %s", err, out)
	}
	w.addresses = strings.NewReplacer()
	w.terminal, err = startShell(w.t, "127.0.0.1:8080", append(isolated, "bash", "--norc")...)
	if err == nil {
		_, err = w.terminal.run(w.t.Context(), strings.Join(up, " "))
	}
	return err
}

// shell executes a command in the terminal of the reader, which the first command opens.
func (w *runner) shell(ctx context.Context, s step) (answer, missing string, err error) {
	if w.terminal == nil {
		if err := w.openTerminal(); err != nil {
			return "", "", err
		}
	}
	text, err := w.terminal.run(ctx, w.addresses.Replace(s.command))
	if err != nil {
		return text, "exit code 0", err
	}
	vars, missing := match(text, s.expect, w.vars)
	if missing == "" {
		w.vars = vars
	}
	return text, missing, nil
}
