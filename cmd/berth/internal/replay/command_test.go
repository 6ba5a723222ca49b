package replay

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth.dev/api/rpc"
	"berth.dev/testkit/porttest"
)

// TestReplay plays a small trace against a cluster in this process, over real sockets.
func TestReplay(t *testing.T) {
	dir := writeTrace(t, map[string]string{
		nodesFile: "node_name,gpu_capacity_num,cpu_num\na,1,8\nb,,8\n",
		// The second batch of app_1 uses the capacity that the first batch releases. The
		// batch of app_2 does not fit.
		instancesFile: `app_name,role,cpu_request,gpu_request,creation_time,deletion_time
app_1,CN,4,0,,10
app_1,CN,4,0,,12
app_1,HN,2,1,5,
app_1,CN,8,0,20.0,
app_2,CN,2,2,1,
app_2,CN,2,2,3,
`,
	})
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := Command()
	cmd.SetArgs([]string{dir, "--settle", "2s", "--report", file})
	var out, status strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&status)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s%s", err, status.String(), out.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Batches != 5 || r.Waiting != 2 || r.Granted+r.Withdrawn != 3 || r.Cancelled != 1 || r.Workers != 6 ||
		r.Executors != 2 {
		t.Errorf("report: %s", text)
	}
	if r.ViolationCount != 0 || len(r.Violations) != 0 || r.WorkersLeased == 0 || r.WorkersRunning == 0 ||
		r.StartedTwice != 0 {
		t.Errorf("report: %s", text)
	}
	t.Logf("%s%s", status.String(), out.String())
}

// TestReplayWithoutCluster checks that a replay against a cluster that does not answer
// ends with exit code 4.
func TestReplayWithoutCluster(t *testing.T) {
	dir := writeTrace(t, map[string]string{
		nodesFile:     "node_name,gpu_capacity_num,cpu_num\na,1,8\n",
		instancesFile: "app_name,role,cpu_request,gpu_request,creation_time,deletion_time\napp_1,CN,4,0,,10\n",
	})
	dead := porttest.Hold(t)
	cmd := Command()
	cmd.SetArgs([]string{dir, "--gateway", dead, "--agents-gateway", dead, "--etcd-endpoints", dead, "--timeout", "100ms"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); rpc.ExitCode(err) != rpc.ExitUnavailable {
		t.Errorf("exit %d: %v", rpc.ExitCode(err), err)
	}
}

func writeTrace(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
