package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const habitsHead = `# Habits from other tools

Commands that people who use kubectl, Nomad or Slurm type without thinking, and what to type instead. A test runs every command of the second column in this order; ` + "`go test ./integration/docs -rewrite`" + ` generates the table from it. If you type a word of another tool, the error names the command of Berth.

| habit | with Berth | what happens |
|---|---|---|
`

// habit is a row of the table.
type habit struct {
	// typed is what people type in other tools; command is the command of Berth, a line of
	// a shell.
	typed, command, result string
	// want is a pattern of the output. The test repeats a command whose output does not
	// match yet, if again is set.
	want  string
	again bool
	// exit is the exit code. A command that does not end is stopped when its output matches.
	exit    int
	endless bool
}

var habits = []habit{
	{typed: "`kubectl apply -f FILE`, `nomad job run`, `sbatch`", command: "berth apply -f job.yaml",
		result: "creates or changes what the file describes", want: `^train/gpu/main CREATED`},
	{typed: "`cat FILE \\| kubectl apply -f -`", command: "cat job.yaml | berth apply -f -",
		result: "repeating changes nothing", want: `^train/gpu/main UNCHANGED`},
	{typed: "`kubectl wait --for=condition=…`", command: "berth wait train/gpu --for active --deadline 1m",
		result: "returns when all workers are placed; exit code 1 after the deadline", want: `^train/gpu/main ACTIVE`},
	{typed: "`kubectl wait --for=condition=Ready pod`", command: "berth wait train/gpu --for running",
		result: "returns when all workers run", want: `^train/gpu/main RUNNING`},
	{typed: "`kubectl wait --for=condition=complete`", command: "berth apply -f fails.yaml && berth wait fails/once --for completed",
		result: "exit code 1 if a worker did not end with exit code 0",
		want:   `fails/once/main is COMPLETED, but not every worker ended with exit code 0 \(1 of 1 did not\): 1 of 1 worker failed`, exit: 1},
	{typed: "`kubectl diff`, `apply --dry-run`, `nomad job plan`", command: "sed 's/count: 2/count: 1/' job.yaml | berth apply -f - --dry-run",
		result: "prints a diff; exit code 5 if something would change", want: `(?m)^\+ *count: 1`, exit: 5},
	{typed: "`kubectl get podgroups`, `kubectl get workloads`", command: "berth get reservations",
		result: "lists the gangs", want: `train/gpu/main +ACTIVE +2/2`, again: true},
	{typed: "`kubectl get TYPE NAME`", command: "berth get train/gpu",
		result: "the same as `berth get reservations train/gpu`", want: `train/gpu/main +ACTIVE +2/2`, again: true},
	{typed: "`kubectl get pods`, `nomad job allocs`", command: "berth get assignments",
		result: "lists the workers and where they run", want: `train/gpu/0\.1 +agent-\d +RUNNING`, again: true},
	{typed: "`kubectl get pods --field-selector spec.nodeName=…`", command: "berth get assignments --executor agent-0 --state running",
		result: "filters on the server; each list has its own filters in `--help`", want: `^WORKER|^No assignments`},
	{typed: "`kubectl get nodes -o wide`, `nomad node status`, `sinfo`", command: "berth get executors -o wide",
		result: "lists the hosts with more columns", want: `agent-2 +host +READY`},
	{typed: "`kubectl get TYPE NAME NAME…`", command: "berth get executors agent-0 agent-2",
		result: "lists several objects by name", want: `(?s)^EXECUTOR.*agent-0 .*agent-2 `},
	{typed: "`kubectl get … -o json \\| jq`", command: "berth get reservations -o json",
		result: "the JSON of the REST API", want: `(?s)^{.*"state": "ACTIVE".*}$`},
	{typed: "`kubectl get … -o yaml \\| kubectl apply -f -`", command: "berth get reservations train/gpu/main -o yaml | berth apply -f -",
		result: "the output is a job file", want: `^train/gpu/main UNCHANGED`},
	{typed: "`kubectl get … -o name \\| xargs`", command: "berth get reservations -o name | xargs -n 1 berth describe",
		result: "one name in a line, which every command accepts", want: `(?m)^Reservation +train/gpu/main$`},
	{typed: "`kubectl get … --no-headers \\| head`", command: "berth get executors -o name | head -n 1",
		result: "`-o name` has no headers; a closed pipe is no error", want: `^agent-\d$`},
	{typed: "`kubectl get -w`", command: "berth get reservations -w",
		result: "updates in place on a terminal, prints changes elsewhere", want: `train/gpu/main +ACTIVE`, endless: true},
	{typed: "`kubectl get jobs`, `nomad job status`", command: "berth get jobs",
		result: "lists the jobs that have anything alive", want: `train .*2`},
	{typed: "`kubectl describe pod`, `nomad job status`, `scontrol show job`", command: "berth describe train/gpu",
		result: "the request, the workers and the last events", want: `(?s)State +ACTIVE.*WORKER_RUNNING`, again: true},
	{typed: "`kubectl describe job`", command: "berth describe job train",
		result: "the workers, the reservations and the last events of a job", want: `(?s)^Job +train.*train/gpu/main +ACTIVE`},
	{typed: "`kubectl describe node`, `nomad node status ID`", command: "berth describe executor agent-0",
		result: "state, resources and workers of a host", want: `(?s)State +READY.*slots`},
	{typed: "`kubectl get events --watch`", command: "berth events train -f",
		result: "prints the events of a job as they happen; `--since` resumes after a cursor", want: `WORKER_RUNNING`, endless: true},
	{typed: "`kubectl logs -f POD`, `nomad alloc logs -f`", command: "berth logs train/gpu/0 -f",
		result: "prints what a worker writes, until it ends", want: `(?m)^step 1$`, endless: true},
	{typed: "`kubectl logs -f -l APP --prefix`, `docker compose logs -f`", command: "berth logs train/gpu -f",
		result: "follows all workers of a stage, each line after its worker", want: `(?m)^\[\d\.1\] step 1$`, endless: true},
	{typed: "`kubectl logs --previous`, `nomad alloc logs -stderr`", command: "berth logs train/gpu/0.1 --stderr --tail 100",
		result: "a worker by its number, and its standard error", want: `^warning$`, again: true},
	{typed: "`htop`, `kubectl top`", command: "berth top --once",
		result: "leaders, capacity, queues and the largest jobs; without `--once` it updates in place",
		want:   `(?s)Leaders.*registry.*Executors by SKU.*host`},
	{typed: "`kubectl top nodes`", command: "berth top nodes",
		result: "suggests `berth get executors`, which shows the use of each host; exit code 2",
		want:   `did you mean 'berth get executors'`, exit: 2},
	{typed: "`squeue`, `kubectl get localqueues`", command: "berth apply -f etl.yaml && berth get pending",
		result: "the queues, how long their heads have waited, and why", want: `etl/map/main .*INSUFFICIENT_CAPACITY`, again: true},
	{typed: "`squeue --start`, `nomad eval status`", command: "berth explain etl/map",
		result: "why the gang waits, and which check each executor fails", want: `INSUFFICIENT_CAPACITY: 100 needed`},
	{typed: "`kubectl get nodepools`, cloud console", command: "berth get usage",
		result: "used and wanted executors of each SKU, as the autoscaler reads them", want: `(?m)^SKU`},
	{typed: "`kubectl cordon NODE`, `scontrol update State=DRAIN`", command: "berth disable agent-2 --request patch --reason 'new kernel'",
		result: "no new workers; those that run keep running", want: `agent-2|patch`},
	{typed: "`kubectl uncordon NODE`", command: "berth enable agent-2",
		result: "undoes `disable` and `drain`", want: `^undid 1 request`},
	{typed: "`kubectl drain NODE`, `nomad node drain`", command: "berth drain agent-2 --wait",
		result: "disables the host, stops its workers and waits for their end", want: `agent-2: drained`},
	{typed: "`kubectl cluster-info`, `nomad server members`", command: "berth get leaders",
		result: "the leader and the standbys of each service", want: `registry +\S+ +LEADER`},
	{typed: "`kubectl get --raw /metrics`", command: "curl -s http://$BERTH_GATEWAY/metrics",
		result: "metrics in the format of Prometheus", want: `(?m)^berth_leader{`},
	{typed: "`kubectl config set-cluster`, `nomad -address`", command: "berth config set prod --gateway $BERTH_GATEWAY",
		result: "stores a context: gateways and credentials", want: `context prod stored`},
	{typed: "`kubectl config use-context prod`", command: "berth config use-context prod && berth config get-contexts",
		result: "the same as `berth config use` and `berth config list`", want: `(?m)^prod +yes`},
	{typed: "`kubectl config current-context`, `kubectl config view`", command: "berth config current-context && berth config view -o yaml",
		result: "prints the name of the current context, and all contexts", want: `(?s)^prod\n.*gateway:`},
	{typed: "`kubectl --context prod get …`", command: "berth get leaders --context prod",
		result: "one command with another context", want: `registry`},
	{typed: "`KUBECONFIG=FILE kubectl …`", command: "BERTH_CONTEXTS=other.yaml berth config list",
		result: "another file of contexts", want: `No contexts`},
	{typed: "`kubectl get pod TAB`", command: "berth __complete get reservations train/",
		result: "`berth completion bash`, `zsh` and `fish` complete names from the cluster", want: `(?m)^train/gpu`},
	{typed: "`kubectl completion bash`", command: "berth completion bash | bash -n && echo valid",
		result: "prints the script for the shell", want: `^valid$`},
	{typed: "`kubectl get --help`, `man`", command: "berth get --help",
		result: "each help has examples", want: `(?s)Examples:\n  berth get`},
	{typed: "`kubectl version`, `nomad --version`", command: "berth --version && berth version -o json",
		result: "version, commit and version of Go", want: `(?s)^berth .*"commit"`},
	{typed: "`kubectl get pod nosuch; echo $?`", command: "berth describe nosuch/stage",
		result: "exit code 3 if something does not exist; 2 for wrong usage, 4 if no gateway answers", want: `NOT_FOUND`, exit: 3},
	{typed: "`kubectl … --request-timeout 1s`", command: "berth get leaders --gateway 127.0.0.1:1 --timeout 1s",
		result: "gives up after the time, with exit code 4", want: `berth: .*127\.0\.0\.1:1`, exit: 4},
	{typed: "`NO_COLOR=1 kubectl …`", command: "NO_COLOR=1 berth get reservations",
		result: "colors appear only on terminals, and never with `NO_COLOR`", want: `^[^\x1b]*$`},
	{typed: "`kubectl delete job`, `nomad job stop`, `scancel`", command: "berth cancel train/gpu",
		result: "stops the workers; repeating it succeeds", want: `cancelled 1 reservation`},
	{typed: "a word of another tool", command: "berth delete train/gpu",
		result: "suggests the command; exit code 2", want: `did you mean 'berth cancel train/gpu'`, exit: 2},
	{typed: "`kubectl cordon node NODE`", command: "berth cordon node agent-2",
		result: "suggests `berth disable agent-2`; exit code 2", want: `did you mean 'berth disable agent-2'`, exit: 2},
	{typed: "`kill -USR1`, `scancel -s USR1`", command: "berth signal train/gpu -USR1",
		result: "suggests `berth signal train/gpu USR1`; exit code 2", want: `did you mean 'berth signal train/gpu USR1'`, exit: 2},
	{typed: "`kubectl rollout status`", command: "berth rollout status train/gpu",
		result: "suggests `berth wait train/gpu`; exit code 2", want: `did you mean 'berth wait train/gpu'`, exit: 2},
	{typed: "`kubectl exec`, `nomad alloc exec`", command: "berth exec -it train/gpu/0 -- sh",
		result: "Berth runs no shell in workers; the error names `berth logs`; exit code 2",
		want:   `Berth runs no shell in workers; 'berth logs`, exit: 2},
	{typed: "`kubectl api-resources`", command: "berth api-resources",
		result: "suggests `berth get`, whose help lists the kinds; exit code 2", want: `did you mean 'berth get'`, exit: 2},
	{typed: "`kubectl get ns`", command: "berth get ns",
		result: "suggests `berth get tenants`; exit code 2", want: `did you mean 'berth get tenants'`, exit: 2},
	{typed: "a typing error", command: "berth get reservatoins",
		result: "suggests the kind; exit code 2", want: `did you mean 'berth get reservations'`, exit: 2},
}

// TestHabits runs the command of each habit, in order, against a cluster with real agents.
func TestHabits(t *testing.T) {
	t.Parallel()
	table := habitsHead
	for _, h := range habits {
		table += fmt.Sprintf("| %s | `%s` | %s |\n", h.typed, strings.ReplaceAll(h.command, "|", `\|`), h.result)
	}
	const name = "docs/reference/habits.md"
	if *rewrite {
		if err := os.WriteFile(filepath.Join(root, name), []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, name) != table {
		t.Errorf("%s is stale: go test ./integration/docs -rewrite", name)
	}
	program, err := filepath.Abs(berth(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"job.yaml": "job: train\nstage: gpu\ncount: 2\ntargetSize: 2\n" +
			"task:\n  command: sh\n  args: [-c, echo step 1; echo warning >&2; exec sleep 1000]\n",
		"fails.yaml": "job: fails\nstage: once\ncount: 1\n" +
			"task:\n  command: sh\n  args: [-c, exit 3]\n",
		"etl.yaml": "job: etl\nstage: map\ncount: 100\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := runner{t: t}
	if err := w.dev([]string{"dev", "--listen", "127.0.0.1:0", "--agents", "3", "--executors", "0"}); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "BERTH_GATEWAY="+w.real,
		"BERTH_CONTEXTS="+filepath.Join(dir, "contexts.yaml"))
	for _, h := range habits {
		if err := h.run(t.Context(), dir, env); err != nil {
			t.Fatalf("%s: %v", h.command, err)
		}
	}
}

// run runs the command until it ends, or until its output is the expected one.
func (h habit) run(ctx context.Context, dir string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	want := regexp.MustCompile(h.want)
	for {
		cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", h.command)
		cmd.Dir, cmd.Env = dir, env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = patience
		out := &matcher{want: want}
		if h.endless {
			out.matched = func() { _ = cmd.Cancel() }
		}
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		var exit *exec.ExitError
		switch text := bytes.TrimSpace(out.text.Bytes()); {
		case err != nil && !errors.As(err, &exit):
			return fmt.Errorf("want %s: %w:\n%s", h.want, err, text)
		case want.Match(text) && (h.endless || cmd.ProcessState.ExitCode() == h.exit):
			return nil
		case !h.again || ctx.Err() != nil:
			return fmt.Errorf("want %s and exit code %d, got %v:\n%s", h.want, h.exit, cmd.ProcessState, text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// matcher collects output, and calls matched once when the output matches a pattern.
type matcher struct {
	text    bytes.Buffer
	want    *regexp.Regexp
	matched func()
}

var _ io.Writer = (*matcher)(nil)

func (m *matcher) Write(p []byte) (int, error) {
	m.text.Write(p)
	if m.matched != nil && m.want.Match(m.text.Bytes()) {
		m.matched()
		m.matched = nil
	}
	return len(p), nil
}
