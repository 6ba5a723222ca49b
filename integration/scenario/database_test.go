package scenario

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
)

const (
	dbJob = "db"
	// documents is the number of documents of the database.
	documents = 20
)

// The example database keeps its documents while a host is lost, while its nodes, an agent and the
// leaders are killed, while it is restarted node by node, and while a disk moves to another host.
// Each node with documents runs again where they are. In the end, the volumes are deleted. This plays
// acceptance checks 1 to 6 of volumes through the example.
func TestDatabase(t *testing.T) {
	t.Parallel()
	d := startDatabase(t, buildExample(t, "database"))
	for i := range documents {
		d.put(fmt.Sprintf("key-%d", i))
	}
	d.put("config.name")
	d.planned()
	d.apart()
	d.losesHost()

	// While a primary is down, its documents are read from its secondary.
	before := d.nodes()
	home := before["data/0"].GetExecutor()
	d.fleet.Agent(home).Kill()
	d.kill("data/0")
	if primary, secondary := d.readAll(); primary == 0 || secondary == 0 {
		t.Errorf("%d documents were read from primaries and %d from secondaries, want both", primary, secondary)
	}
	d.restart(d.fleet.Agent(home))
	d.runsAgain(before, "data/0")

	// A change of leader loses no node.
	for i, service := range fleet.Services {
		name := []string{"data/1", "secondary/0", "agents/1"}[i]
		leader, term := d.leader(service)
		leader.Kill()
		before = d.nodes()
		d.kill(name)
		d.runsAgain(before, name)
		d.nextLeader(service, leader, term)
		d.restart(leader)
	}
	before = d.nodes()
	d.kill("coordinator/0")
	d.runsAgain(before, "coordinator/0")

	d.restarts()
	d.keepsPlaces()
	d.losesDirectory()
	d.movesDisk()
	d.planned()
	d.ends()
}

// database is a fleet with the processes of the example.
type database struct {
	*world
	program, home string // home has the addresses of the nodes
	shown         *exec.Cmd
	filled        map[string]time.Time // what process returned for the nodes that were killed
}

// startDatabase starts the example, and waits until all nodes run.
func startDatabase(t *testing.T, program string) *database {
	t.Helper()
	d := &database{program: program, home: filepath.Dir(program), filled: map[string]time.Time{}}
	t.Cleanup(func() { noneLeft(t, program) })
	d.world = start(t, fleet.Config{})
	for i := range 4 {
		d.startAgents(d.host(fmt.Sprintf("host-%d", i)))
	}
	d.awaitReady(4)
	log, err := os.Create(filepath.Join(d.dir, "database.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.shown = d.command()
	d.shown.Stderr = log
	if err := d.shown.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.shown.Process.Kill() }) //nolint:errcheck // it has ended unless the test has failed
	until(t, func() string {
		if text := tail(log.Name(), 10_000); !strings.Contains(text, "all nodes run") {
			return "not all nodes run: " + text
		}
		return ""
	})
	return d
}

func (d *database) host(id string) fleet.Agent {
	return fleet.Agent{ID: id, Slots: 4, Resources: []string{"disk=4Gi"}, SKU: "database",
		Attributes: []string{"pool=frail"}, Allow: []string{d.program}}
}

func (d *database) command(args ...string) *exec.Cmd {
	command := exec.Command(d.program, append([]string{"-gateway", d.fleet.Gateway(), "-dir", d.home}, args...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// call calls a coordinator. It returns the document, and the node that had it.
func (d *database) call(coordinator int, method, key, document string) (text, node string, err error) {
	address, err := os.ReadFile(filepath.Join(d.home, "nodes", "coordinator", fmt.Sprint(coordinator)))
	if err != nil {
		return "", "", err
	}
	request, err := http.NewRequestWithContext(d.ctx, method, string(address)+key, strings.NewReader(document))
	if err != nil {
		return "", "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s, %s", method, key, answer.Status, body)
	}
	return string(body), answer.Header.Get("Node"), err
}

func (d *database) put(key string) {
	d.Helper()
	if _, _, err := d.call(0, http.MethodPut, key, "the document "+key); err != nil {
		d.Fatal(err)
	}
}

// read reads a document from the first coordinator that answers, and returns the node that had it.
func (d *database) read(key string) string {
	d.Helper()
	text, node, err := d.call(0, http.MethodGet, key, "")
	if err != nil {
		text, node, err = d.call(1, http.MethodGet, key, "")
	}
	if err != nil || text != "the document "+key {
		d.Fatalf("%s is %q on %s, %v", key, text, node, err)
	}
	return node
}

// readAll reads all documents, and counts those from primaries and secondaries.
func (d *database) readAll() (primary, secondary int) {
	d.Helper()
	for i := range documents {
		if strings.HasPrefix(d.read(fmt.Sprintf("key-%d", i)), "secondary/") {
			secondary++
		} else {
			primary++
		}
	}
	d.read("config.name")
	return primary, secondary
}

// nodes returns the running workers.
func (d *database) nodes() map[string]*berthv1.Assignment {
	d.Helper()
	found := map[string]*berthv1.Assignment{}
	for a, err := range d.client.Assignments(d.ctx, &berthv1.ListAssignmentsRequest{Job: dbJob,
		State: berthv1.Assignment_RUNNING}) {
		if err != nil {
			d.Fatal(err)
		}
		found[fmt.Sprintf("%s/%d", a.GetStage(), a.GetIndex())] = a
	}
	return found
}

// process returns the process of a node, and the time at which its volume got its first documents:
// zero for a coordinator.
func (d *database) process(name string) (pid int, filled time.Time) {
	d.Helper()
	for pid, command := range processes(d.program) {
		env := environment(pid)
		if !strings.HasPrefix(command, d.program+" ") || env["BERTH_STAGE"]+"/"+env["BERTH_WORKER_INDEX"] != name {
			continue
		}
		if env["BERTH_VOLUME"] == "" {
			return pid, time.Time{}
		}
		info, err := os.Stat(filepath.Join(env["BERTH_VOLUME"], ".complete"))
		if err != nil {
			d.Fatal(err)
		}
		return pid, info.ModTime()
	}
	d.Fatalf("%s does not run", name)
	return 0, time.Time{}
}

// kill kills the process of a node.
func (d *database) kill(name string) {
	d.Helper()
	pid, filled := d.process(name)
	d.filled[name] = filled
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		d.Fatal(err)
	}
	until(d.T, func() string {
		if _, runs := processes(d.program)[pid]; runs {
			return name + " does not end"
		}
		return ""
	})
}

// losesHost loses the host of a secondary until its nodes run elsewhere. The new secondary copies
// the documents. An agent of the database waits for the host.
func (d *database) losesHost() {
	d.Helper()
	before := d.nodes()
	home := before["secondary/0"].GetExecutor()
	d.lostAfter(0)
	d.fleet.Agent(home).Kill()
	for name, was := range before {
		if was.GetExecutor() == home {
			d.kill(name)
		}
	}
	until(d.T, func() string {
		now := d.nodes()
		for name, was := range before {
			on := now[name].GetExecutor()
			if waits := was.GetExecutor() == home && was.GetStage() == "agents"; !waits && (on == "" || on == home) {
				return fmt.Sprintf("%s is %v", name, now[name])
			}
		}
		return ""
	})
	d.lostAfter(time.Hour)
	d.restart(d.fleet.Agent(home))
	d.allRun(before)
	for name, now := range d.nodes() {
		if was := before[name]; was.GetStage() == "agents" && now.GetExecutor() != was.GetExecutor() {
			d.Errorf("%s moved from %s to %s", name, was.GetExecutor(), now.GetExecutor())
		}
	}
}

// lostAfter sets the time after which a host without an agent is LOST.
func (d *database) lostAfter(limit time.Duration) {
	d.Helper()
	if _, err := d.client.PutPool(d.ctx, &berthv1.Pool{Name: "frail", LostAfter: durationpb.New(limit)}); err != nil {
		d.Fatal(err)
	}
}

// runsAgain waits until a killed node runs again, and checks that it has its executor and its volume
// with all documents, and that the other nodes are the same.
func (d *database) runsAgain(before map[string]*berthv1.Assignment, killed string) {
	d.Helper()
	var now map[string]*berthv1.Assignment
	until(d.T, func() string {
		if now = d.nodes(); len(now) < len(before) || now[killed].GetNumber() == before[killed].GetNumber() {
			return fmt.Sprintf("%s does not run again: %v", killed, now[killed])
		}
		return ""
	})
	for name, was := range before {
		number := was.GetNumber()
		if name == killed {
			number++
		}
		if stateless := strings.HasPrefix(name, "coordinator/"); now[name].GetNumber() != number ||
			now[name].GetExecutor() != was.GetExecutor() && !stateless {
			d.Errorf("%s was %v, is %v", name, was, now[name])
		}
	}
	if _, filled := d.process(killed); !filled.Equal(d.filled[killed]) {
		d.Errorf("%s got its first documents at %v, before at %v", killed, filled, d.filled[killed])
	}
	if _, secondary := d.readAll(); secondary > 0 {
		d.Errorf("%d documents were read from secondaries while all primaries run", secondary)
	}
}

// keepsPlaces fills all slots that the nodes do not use. While nodes are down, none of 100 batches
// gets their place.
func (d *database) keepsPlaces() {
	d.Helper()
	const free = 4*4 - 9
	node := func(job, name string, count int32) *berthv1.Reservation {
		return &berthv1.Reservation{Job: job, Stage: "coordinator", Name: name, Count: count,
			Constraints: &berthv1.Constraints{Sku: "database"},
			Task: &berthv1.Task{Command: d.program, Args: []string{"-dir", d.TempDir(), "node"},
				Readiness: berthv1.Readiness_REPORTED.Enum()}}
	}
	d.upsert(node("others", "", free))
	first := d.upsert(node("late", "", 1))
	for n, name := range []string{"data/0", "data/1", "agents/1", "secondary/0"} {
		before := d.nodes()
		d.kill(name)
		for i := range 25 {
			d.upsert(node("late", fmt.Sprintf("try-%d-%d", n, i), 1))
		}
		d.runsAgain(before, name)
	}
	explained, err := d.client.Explain(d.ctx, client.KeyOf(first))
	if err != nil || explained.GetReason() != "INSUFFICIENT_CAPACITY" {
		d.Errorf("%v, %v", explained, err)
	}
	for r, err := range d.client.List(d.ctx, &berthv1.ListReservationsRequest{Job: "late"}) {
		if err != nil || r.GetState() != berthv1.Reservation_QUEUED {
			d.Errorf("%v, %v", r, err)
		}
	}
	d.cli("", "cancel", "late")
	d.cli("", "cancel", "others")
}

// losesDirectory deletes the directory of a node while its agent is stopped. The node does not start
// with an empty directory until its volume is abandoned. Then it copies the documents.
func (d *database) losesDirectory() {
	d.Helper()
	before := d.nodes()
	home := before["agents/2"].GetExecutor()
	volume := d.volume("agents", 2)
	d.fleet.Agent(home).Kill()
	d.kill("agents/2")
	if err := os.RemoveAll(filepath.Join(d.dir, home, "volumes", volume.GetId())); err != nil {
		d.Fatal(err)
	}
	d.restart(d.fleet.Agent(home))
	until(d.T, func() string {
		if pending := d.cli("", "get", "pending", "-o", "wide"); !strings.Contains(pending, "VOLUME_LOST") {
			return "agents/2 does not wait: " + pending
		}
		return ""
	})
	d.cli("", "volumes", "abandon", volume.GetId(), "--yes")
	d.allRun(before)
	if now := d.volume("agents", 2); now.GetId() == volume.GetId() {
		d.Errorf("agents/2 has the volume %s again", now.GetId())
	}
	d.readAll()
}

// movesDisk starts an agent with the directory of another one, and with another ID. The nodes with
// volumes run there once the old executor is LOST.
func (d *database) movesDisk() {
	d.Helper()
	before := d.nodes()
	home := before["agents/0"].GetExecutor()
	d.fleet.Agent(home).Kill()
	for name, was := range before {
		if was.GetExecutor() == home {
			d.kill(name)
		}
	}
	moved := d.host("moved")
	moved.Dir = filepath.Join(d.dir, home)
	if err := fleet.GiveDirectory(moved.Dir, moved.ID); err != nil {
		d.Fatal(err)
	}
	d.startAgents(moved)
	until(d.T, func() string {
		if findings := d.cli("", "get", "findings"); !strings.Contains(findings, "VOLUME_MISPLACED") {
			return "the volumes are not misplaced: " + findings
		}
		return ""
	})
	d.lostAfter(0)
	until(d.T, func() string {
		for name, now := range d.nodes() {
			if now.GetExecutor() == home {
				return fmt.Sprintf("%s is on %s", name, home)
			}
		}
		return ""
	})
	d.allRun(before)
	d.lostAfter(time.Hour)
	for name, now := range d.nodes() {
		if before[name].GetExecutor() != home || now.GetStage() == "coordinator" {
			continue
		}
		if _, filled := d.process(name); now.GetExecutor() != "moved" || !filled.Equal(d.filled[name]) {
			d.Errorf("%s is on %s, with documents since %v, not %v", name, now.GetExecutor(), filled, d.filled[name])
		}
	}
	d.readAll()
}

// allRun waits until as many nodes run as before.
func (d *database) allRun(before map[string]*berthv1.Assignment) {
	d.Helper()
	until(d.T, func() string {
		if now := d.nodes(); len(now) < len(before) {
			return fmt.Sprintf("%d of %d nodes run", len(now), len(before))
		}
		return ""
	})
}

// volume returns the volume of a node.
func (d *database) volume(stage string, index int32) (found *berthv1.Volume) {
	d.Helper()
	for v, err := range d.client.Volumes(d.ctx, &berthv1.ListVolumesRequest{Job: dbJob, Stage: stage}) {
		if err != nil {
			d.Fatal(err)
		}
		if v.GetIndex() == index && v.GetState() != berthv1.Volume_ABANDONED {
			found = v
		}
	}
	return found
}

// restarts restarts the database node by node. All documents can be read meanwhile.
func (d *database) restarts() {
	d.Helper()
	before := d.nodes()
	rolling := d.command("restart")
	var out strings.Builder
	rolling.Stderr = &out
	if err := rolling.Start(); err != nil {
		d.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- rolling.Wait() }()
	for running := true; running; {
		select {
		case err := <-ended:
			if running = false; err != nil {
				d.Fatalf("restart: %v, %s", err, out.String())
			}
		default:
			d.readAll()
		}
	}
	now := d.nodes()
	for name, was := range before {
		if now[name].GetNumber() != was.GetNumber()+1 {
			d.Errorf("%s was %v, is %v after a restart", name, was, now[name])
		}
		if was.GetStage() != "coordinator" && now[name].GetExecutor() != was.GetExecutor() {
			d.Errorf("%s moved from %s to %s", name, was.GetExecutor(), now[name].GetExecutor())
		}
	}
}

// planned checks that each node is satisfied, and that each but the coordinators has a volume.
func (d *database) planned() {
	d.Helper()
	plan, err := d.client.Plan(d.ctx, dbJob)
	if err != nil {
		d.Fatal(err)
	}
	planned := 0
	for _, s := range plan.Stages {
		for _, w := range s.Workers {
			if w.VolumeState == berthv1.Volume_ABANDONED.String() {
				continue // of the host that was lost
			}
			if planned++; !w.Satisfied || w.Persistent != (s.Stage != "coordinator") {
				d.Errorf("%s: %+v", s.Stage, w)
			}
		}
	}
	rows := strings.Count(d.cli("", "plan", dbJob), "RUNNING")
	if planned != 9 || rows != 9 {
		d.Errorf("%d nodes are planned, %d run: %+v", planned, rows, plan)
	}
}

// apart checks that agents and primaries are on different hosts, and secondaries apart from their
// primaries.
func (d *database) apart() {
	d.Helper()
	nodes := d.nodes()
	for _, pair := range [][2]string{{"agents/0", "agents/1"}, {"agents/0", "agents/2"}, {"agents/1", "agents/2"},
		{"data/0", "data/1"}, {"data/0", "secondary/0"}, {"data/1", "secondary/1"}} {
		if on := nodes[pair[0]].GetExecutor(); on == nodes[pair[1]].GetExecutor() {
			d.Errorf("%s and %s are on %q", pair[0], pair[1], on)
		}
	}
}

// ends cancels the job, and deletes its volumes while one of its hosts is down. The command names
// what is left there, and it is deleted once the host has returned.
func (d *database) ends() {
	d.Helper()
	if err := d.shown.Process.Signal(os.Interrupt); err != nil {
		d.Fatal(err)
	}
	if err := d.shown.Wait(); err != nil {
		d.Errorf("the example ended with %v", err)
	}
	d.cli("", "cancel", dbJob)
	d.quiesce()
	left := d.volume("agents", 1)
	d.fleet.Agent(left.GetExecutor()).Kill()
	d.awaitUnreachable(left.GetExecutor())
	out, ok := d.try("--gateway", d.fleet.Gateway(), "volumes", "delete", dbJob, "--yes", "--wait", "1s")
	if ok || !strings.Contains(out, left.GetId()) {
		d.Errorf("succeeded %v: %s", ok, out)
	}
	d.restart(d.fleet.Agent(left.GetExecutor()))
	d.cli("", "volumes", "delete", dbJob, "--yes", "--wait", patience.String())
	d.nothingLeased()
	for v, err := range d.client.Volumes(d.ctx, &berthv1.ListVolumesRequest{}) {
		d.Errorf("left: %v, %v", v, err)
	}
	directories, err := filepath.Glob(filepath.Join(d.dir, "host-*", "volumes", "*"))
	if err != nil || len(directories) > 0 {
		d.Errorf("left on the executors: %v, %v", directories, err)
	}
}
