package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/testkit/transcript"
)

// asBerth is the environment variable that makes the test binary run as berth.
const asBerth = "TEST_AS_BERTH_CLI"

func TestMain(m *testing.M) {
	if os.Getenv(asBerth) != "" {
		os.Exit(Run(context.Background(), New(Standard()), os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// TestTranscripts plays testdata/*.txt against a fake gateway. A line that begins with
// `$` is a command line. In a command line, `|` separates the commands of a pipe, and `<`
// precedes a file in testdata. A line that begins with `%` changes the fake. The lines
// after a command line are its output. Lines of standard error have the prefix `! `. The
// last line is `exit N` unless the exit code N is 0.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(t *testing.T, text string) string { return play(t, newFake(t), text) })
}

// play returns the transcript with the actual outputs.
func play(t *testing.T, f *fake, script string) string {
	var out strings.Builder
	printed := false
	begin := func(line string) {
		if printed {
			out.WriteByte('\n')
		}
		fmt.Fprintln(&out, line)
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "$ "):
			begin(line)
			out.WriteString(pipeline(t, f, strings.TrimPrefix(line, "$ ")))
			printed = true
		case strings.HasPrefix(line, "% "):
			begin(line)
			f.do(t, strings.Fields(line)[1:])
			printed = false
		case strings.HasPrefix(line, "# "):
			begin(line)
			printed = false
		}
	}
	return out.String()
}

func pipeline(t *testing.T, f *fake, line string) string {
	var stdin []byte
	if command, file, found := strings.Cut(line, " < "); found {
		var err error
		if stdin, err = os.ReadFile(filepath.Join("testdata", file)); err != nil {
			t.Fatal(err)
		}
		line = command
	}
	var out strings.Builder
	printed := strings.NewReplacer(f.address, "GATEWAY", f.temp, "TEMP")
	for command := range strings.SplitSeq(line, " | ") {
		if from, to, found := strings.Cut(strings.TrimPrefix(command, "sed s/"), "/"); found &&
			strings.HasPrefix(command, "sed ") {
			stdin = bytes.ReplaceAll(stdin, []byte(from), []byte(strings.TrimSuffix(to, "/")))
			continue
		}
		var stdout, stderr bytes.Buffer
		command = strings.NewReplacer("GATEWAY", f.address, "TEMP", f.temp).Replace(command)
		code := run(t, f, strings.Fields(command)[1:], bytes.NewReader(stdin), &stdout, &stderr)
		for line := range strings.Lines(stderr.String()) {
			out.WriteString("! " + printed.Replace(line))
		}
		if code != 0 {
			fmt.Fprintf(&out, "exit %d\n", code)
		}
		stdin = stdout.Bytes()
	}
	return printed.Replace(string(stdin)) + out.String()
}

// run runs one command line in this process, in a directory of testdata.
func run(t *testing.T, f *fake, args []string, stdin *bytes.Reader, stdout, stderr *bytes.Buffer) int {
	a := &app{
		Streams: Streams{
			In: stdin, Out: stdout, Err: stderr, Now: f.clock,
			Env: f.environment,
		},
		every: time.Millisecond,
	}
	for i, arg := range args {
		if arg == "''" {
			args[i] = ""
		}
		if strings.HasSuffix(arg, ".yaml") {
			args[i] = "testdata/" + arg
		}
	}
	return Run(t.Context(), newRoot(a), args)
}

// do changes the fake.
func (f *fake) do(t *testing.T, words []string) {
	switch words[0] {
	case "env": // env NAME=VALUE…: the only variables of the environment
		f.env = map[string]string{}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			f.env[name] = strings.NewReplacer("GATEWAY", f.address, "TEMP", f.temp).Replace(value)
		}
	case "file": // file TEMP/NAME MODE TEXT…, with \n for line breaks
		name := strings.Replace(words[1], "TEMP", f.temp, 1)
		mode, err := strconv.ParseUint(words[2], 8, 32)
		if err == nil {
			write(t, name, strings.ReplaceAll(strings.Join(words[3:], " "), "\\n", "\n"))
			err = os.Chmod(name, os.FileMode(mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	case "pass": // pass DURATION
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.now = f.now.Add(d)
		f.mu.Unlock()
	case "output": // see fake.output
		f.output(t, words[1:])
	case "grant": // grant JOB STAGE NAME
		f.grant(words[1], words[2], words[3])
	case "count": // count STATE NAME WORKERS…: the state and the workers of all reservations
		f.mu.Lock()
		for _, r := range f.reservations {
			r.State = berthv1.Reservation_State(berthv1.Reservation_State_value[words[1]])
			r.WorkerCounts, r.Reason, r.Message = map[string]int32{}, nil, nil
			for i := 2; i < len(words); i += 2 {
				n, err := strconv.ParseInt(words[i+1], 10, 32)
				if err != nil {
					t.Error(err)
				}
				r.WorkerCounts[words[i]] = int32(n)
			}
		}
		f.mu.Unlock()
	case "not-ready":
		f.mu.Lock()
		f.notReady = true
		f.mu.Unlock()
	case "unready": // unready REASON…: the gateway is not ready
		f.mu.Lock()
		f.unready = strings.Join(words[1:], " ")
		f.mu.Unlock()
	case "fewer": // fewer COUNT: the latest request of all reservations is for fewer workers
		f.mu.Lock()
		for _, r := range f.reservations {
			r.RequestedCount = proto.Int32(0)
			fmt.Sscan(words[1], r.RequestedCount) //nolint:errcheck // written above, in a transcript
		}
		f.mu.Unlock()
	case "end": // end INDEX STATE REASON: how a worker of train/gpu/main ended, which is not queued again
		f.mu.Lock()
		a := &berthv1.Assignment{Job: "train", Stage: "gpu", Reservation: "main", Number: 1, Executor: "ex-1",
			State: berthv1.Assignment_State(berthv1.Assignment_State_value[words[2]]), Reason: &words[3]}
		fmt.Sscan(words[1], &a.Index) //nolint:errcheck // written above, in a transcript
		f.assignments = append(f.assignments, a)
		r := f.find("train", "gpu", "main")
		r.Ends = append(r.Ends, &berthv1.WorkerEnds{State: words[2], Workers: []*berthv1.WorkerRange{{First: a.Index,
			Last: a.Index, Number: 1}}})
		f.mu.Unlock()
	case "blind":
		f.mu.Lock()
		f.blind = true
		f.mu.Unlock()
	case "finding": // finding SERVICE KIND OBJECT MESSAGE…
		f.mu.Lock()
		f.found = append(f.found, &berthv1.Finding{
			Service: words[1], Kind: words[2], Object: words[3], Message: strings.Join(words[4:], " "),
			Since: timestamppb.New(f.now), Action: "nothing yet",
		})
		f.mu.Unlock()
	case "evict": // evict ID…: the executor's workers are asked to stop, but do not stop
		f.mu.Lock()
		for _, a := range f.assignments {
			if slices.Contains(words[1:], a.Executor) {
				a.State, a.Since = berthv1.Assignment_EVICTING, timestamppb.New(f.now)
			}
		}
		f.mu.Unlock()
	case "default-attribute": // default-attribute NAME VALUE, of all reservations
		f.mu.Lock()
		for _, r := range f.reservations {
			if r.Constraints == nil {
				r.Constraints = &berthv1.Constraints{}
			}
			r.Constraints.Attributes = map[string]string{words[1]: words[2]}
			r.Constraints.DefaultAttributes = words[1:2]
		}
		f.mu.Unlock()
	case "busy": // busy ID…
		f.mu.Lock()
		for _, id := range words[1:] {
			f.executor(id).Workers = 1
		}
		f.mu.Unlock()
	case "pool": // pool NAME ID…
		f.mu.Lock()
		for _, id := range words[2:] {
			f.executor(id).Pool = words[1]
		}
		f.mu.Unlock()
	case "unreachable": // unreachable ID
		f.mu.Lock()
		f.executor(words[1]).State = berthv1.Executor_UNREACHABLE
		f.mu.Unlock()
	case "crowd": // crowd ID WORKERS
		f.mu.Lock()
		fmt.Sscan(words[2], &f.executor(words[1]).Workers) //nolint:errcheck // written above, in a transcript
		f.mu.Unlock()
	case "executors": // executors ID…
		f.mu.Lock()
		for _, id := range words[1:] {
			f.executors = append(f.executors, &berthv1.Executor{
				Id: id, Sku: "gpu-8", Pool: "default", Address: "10.0.0.7:7200", Host: "host-" + id,
				Attributes: map[string]string{"zone": "a"}, State: berthv1.Executor_READY, Incarnation: 1,
				Resources: map[string]int64{"slots": 1, "cpu": 8000, "memory": 16 << 30}, Since: timestamppb.New(f.now),
			})
		}
		f.mu.Unlock()
	case "tenants": // a tenant with all limits, and one without limits
		f.mu.Lock()
		f.tenants = []*berthv1.Tenant{
			{
				Name: "eval", Prefix: "eval-", Limits: &berthv1.TenantLimits{}, Use: &berthv1.TenantUse{Workers: 40},
			},
			{
				Name: "train", Prefix: "train",
				Limits: &berthv1.TenantLimits{
					QueuedReservations: 500, Workers: 10_000, Batch: 1024, StoredBytes: 64 << 20, EventStreams: 20,
					RequestsPerSecond: 2.5, HighestPriority: berthv1.PriorityClass_SCALE, Skus: []string{"gpu-8", "gpu-16"},
					Pools: []string{"night"},
				},
				Use: &berthv1.TenantUse{QueuedReservations: 12, Workers: 9000, StoredBytes: 3 << 19, EventStreams: 3},
			},
		}
		f.mu.Unlock()
	case "caller": // caller [ROLE NAME]; without a role, a caller in plain text, or nobody
		f.mu.Lock()
		f.caller = &berthv1.Caller{Methods: []string{"berth.v1.Callers/GetCaller"}, Cluster: "default", Gateway: "gateway-0",
			Version: "0.1.0"}
		switch {
		case len(words) == 3:
			f.caller.Role, f.caller.Name, f.caller.Identity = words[1], words[2], "berth://default/"+words[1]+"/"+words[2]
		case words[1] == "trusted":
			f.caller.Trusted = true
		}
		f.mu.Unlock()
	case "audited": // a change, a rejected call and a rejected connection
		f.mu.Lock()
		f.audited = []*berthv1.AuditEntry{
			{Time: timestamppb.New(f.now), Caller: "nobody", Peer: "10.0.0.66:51000", Listener: "--agents-listen",
				Outcome: "TLS_REJECTED", Message: "the connection is in plain text; this listener requires TLS", Skipped: 7},
			{Time: timestamppb.New(f.now.Add(-time.Second)), Caller: "berth://default/job/train", Peer: "10.0.0.9:40112",
				Listener: "--listen", Method: "berth.v1.Executors/DrainExecutor", Object: "host-1",
				Outcome: "PermissionDenied", Reason: "PERMISSION_DENIED", Message: "requires the role operator"},
			{Time: timestamppb.New(f.now.Add(-time.Minute)), Caller: "berth://default/operator/alice", Peer: "10.0.0.7:53120",
				Listener: "--listen", Method: "berth.v1.Executors/DrainExecutor", Object: "host-1", RequestId: "d1",
				Outcome: "OK", Revision: 8123},
		}
		f.mu.Unlock()
	case "volume": // volume ID STAGE INDEX EXECUTOR STATE [MESSAGE…], of the job db
		f.mu.Lock()
		v := &berthv1.Volume{Id: words[1], Job: "db", Stage: words[2], Executor: words[4], Resource: "disk",
			Amount: 2 << 30, State: berthv1.Volume_State(berthv1.Volume_State_value[words[5]]),
			Since: timestamppb.New(f.now), Message: strings.Join(words[6:], " ")}
		fmt.Sscan(words[3], &v.Index) //nolint:errcheck // written above, in a transcript
		f.volumes = append(f.volumes, v)
		for _, e := range f.executors {
			if e.Id == v.Executor {
				e.Volumes++
			}
		}
		f.mu.Unlock()
	case "pending": // pending STAGE REASON MESSAGE…: the reservations of the stage are queued
		f.mu.Lock()
		for _, r := range f.reservations {
			if message := strings.Join(words[3:], " "); r.Stage == words[1] {
				r.State, r.Reason, r.Message = berthv1.Reservation_QUEUED, &words[2], &message
			}
		}
		f.mu.Unlock()
	case "leaders":
		f.mu.Lock()
		f.services = []*berthv1.ServiceLeadership{
			{
				Service: "registry", Leader: "registry-0", Address: "10.0.0.1:7101", Term: 42, Since: timestamppb.New(f.now),
				Replicas: []*berthv1.Replica{
					{Id: "registry-1", Address: "10.0.0.2:7101", Role: berthv1.Replica_STANDBY, Revision: 99, Behind: 1,
						Version: "v0.1.0"},
					{Id: "registry-0", Address: "10.0.0.1:7101", Role: berthv1.Replica_LEADER, Revision: 100, Version: "v0.1.0",
						Renewed: timestamppb.New(f.now)},
				},
			},
			{Service: "executor-state", Replicas: []*berthv1.Replica{{Id: "executor-state-0", Address: "10.0.0.1:7102",
				Role: berthv1.Replica_STANDBY, Revision: 100, Version: "v0.1.0"}}},
			{Service: "assigner", Replicas: []*berthv1.Replica{{Address: "10.0.0.1:7103",
				Role: berthv1.Replica_UNREACHABLE, Error: "connection refused"}}},
		}
		f.mu.Unlock()
	default:
		t.Fatalf("no such command: %v", words)
	}
}
