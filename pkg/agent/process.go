package agent

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// ProcessConfig configures a Process driver.
type ProcessConfig struct {
	// Dir is the agent's directory. Each worker has its own directory under Dir/workers. The
	// files stdout and stderr in it contain the worker's output.
	Dir string
	// WorkDir is the working directory of workers, by default the worker's own directory.
	WorkDir string
	// WorkerUIDs is the range of the user IDs of workers. No two running workers have the
	// same ID. The group ID of a worker is its user ID, and it has no other groups. The
	// driver needs root or its capabilities for that. By default workers run as the agent's
	// user.
	WorkerUIDs UIDRange
	// Allow lists the commands that tasks may run: absolute paths, or AllowAll. A task may
	// also use a name that the driver finds in the agent's PATH. The driver does not check
	// arguments: a list that allows a shell allows every command.
	Allow []string
	// AllowEnv lists the names of the variables that tasks may set, or AllowAll. AllowAll
	// does not allow variables that make programs load code, such as LD_PRELOAD and
	// PYTHONPATH: the list must contain their exact names.
	AllowEnv []string
	// Env is the environment of workers, to which the driver adds the task's variables. The
	// default is the agent's PATH, HOME, USER, LANG, TZ and TMPDIR. Workers do not get the
	// rest of the agent's environment. With WorkerUIDs, HOME and TMPDIR are the worker's own
	// directory, and USER is not set.
	Env []string
	// LogMaxBytes is the maximum size of an output file, 16 MiB by default. LogKeep is the
	// number of files for each of a worker's two output streams, including the current file,
	// 2 by default. The keeper removes the oldest file when it begins a new file.
	LogMaxBytes int64
	LogKeep     int
	// EndedKeep, EndedMaxBytes and EndedMaxAge limit the number, the total size and the age
	// of the directories of ended workers. They apply once the control plane has
	// acknowledged the worker's end. The defaults are 64, 1 GiB and a week.
	EndedKeep     int
	EndedMaxBytes int64
	EndedMaxAge   time.Duration
	// StartTimeout is the time after which the driver abandons a start, 30 s by default.
	StartTimeout time.Duration
	// Log is slog.Default() by default.
	Log *slog.Logger
}

// Process is the driver for processes. Each worker is a process in a process group of its
// own, and a child of a keeper. The keeper is another process of this program, so the
// program must call ShimMain. The environment of a worker contains BERTH_JOB,
// BERTH_STAGE, BERTH_WORKER_INDEX, BERTH_WORKER_NUMBER, BERTH_EXECUTOR, BERTH_EPOCH and
// BERTH_WORKERS. With a payload it contains BERTH_PAYLOAD_FILE, with the members of the gang
// BERTH_GANG_FILE (see Gangs), with a volume BERTH_VOLUME and BERTH_VOLUME_ID, and with
// readiness REPORTED BERTH_READY_PIPE: the worker reports that it is ready with a line to
// this pipe. A worker cannot gain privileges (no_new_privs), and inherits no file except its
// output.
//
// A stop signals the whole process group. The processes of the worker have the grace period
// to exit, also if the worker itself exits first. If the worker exits without a stop, the keeper
// kills every process that the worker left behind at once. Only when no process is left, the
// driver reports the end, with the exit code of the worker itself.
type Process struct {
	cfg ProcessConfig
	log *slog.Logger

	// starts is locked for reading during each start, so that Close waits for all starts.
	starts sync.RWMutex
	mu     sync.Mutex
	closed bool
	// starting is the number of starts in progress. started wakes those that wait for files.
	starting int
	started  *sync.Cond
	// left has the directories of workers that were not started and whose removal failed.
	// retryRemoval retries it.
	left         map[string]bool
	retryRemoval *time.Timer
	// removing is locked while a directory of left is removed, and made again. It is locked
	// before mu.
	removing sync.Mutex
	// closing is closed when the driver is closed.
	closing chan struct{}
	// watched has the workers whose keeper still runs.
	watched map[*keptWorker]struct{}
	watches sync.WaitGroup
	// users has the user IDs of workers that have not ended. lastUser is the ID that was
	// given last.
	users    map[uint32]bool
	lastUser uint32
	// retired has the directories of forgotten workers, oldest first. expiry removes the
	// oldest directory when it reaches its maximum age.
	retired []retired
	expiry  *time.Timer
}

// NewProcess returns a driver for processes. It does not create the directory.
func NewProcess(cfg ProcessConfig) (*Process, error) {
	if cfg.Dir == "" {
		return nil, errors.New("agent: Dir is required for processes")
	}
	var err error
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	if cfg.WorkDir != "" {
		if cfg.WorkDir, err = filepath.Abs(cfg.WorkDir); err != nil {
			return nil, err
		}
		var worker user
		if cfg.WorkerUIDs != (UIDRange{}) {
			worker.ID = cfg.WorkerUIDs.Last
		}
		if err := worker.enters(cfg.WorkDir); err != nil {
			return nil, fault.BadField(fault.ReasonInvalid, "--work-dir", "%v", err)
		}
	}
	if cfg.Allow, err = CheckAllow(cfg.Allow); err != nil {
		return nil, err
	}
	if err := CheckAllowEnv(cfg.AllowEnv); err != nil {
		return nil, err
	}
	if cfg.WorkerUIDs != (UIDRange{}) {
		if err := checkUsers(cfg.WorkerUIDs, cfg.Dir); err != nil {
			return nil, err
		}
	}
	if cfg.Env == nil {
		for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"} {
			if value, ok := os.LookupEnv(name); ok {
				cfg.Env = append(cfg.Env, name+"="+value)
			}
		}
	}
	for name, n := range map[string]int64{
		"LogMaxBytes": cfg.LogMaxBytes, "LogKeep": int64(cfg.LogKeep), "EndedKeep": int64(cfg.EndedKeep),
		"EndedMaxBytes": cfg.EndedMaxBytes, "EndedMaxAge": int64(cfg.EndedMaxAge), "StartTimeout": int64(cfg.StartTimeout),
	} {
		if n < 0 {
			return nil, fmt.Errorf("agent: %s must not be negative", name)
		}
	}
	cfg.LogMaxBytes = cmp.Or(cfg.LogMaxBytes, 16<<20)
	cfg.LogKeep = cmp.Or(cfg.LogKeep, 2)
	cfg.EndedKeep = cmp.Or(cfg.EndedKeep, 64)
	cfg.EndedMaxBytes = cmp.Or(cfg.EndedMaxBytes, 1<<30)
	cfg.EndedMaxAge = cmp.Or(cfg.EndedMaxAge, 7*24*time.Hour)
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, defaultStartTimeout)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	p := &Process{cfg: cfg, log: cfg.Log, watched: map[*keptWorker]struct{}{}, users: map[uint32]bool{},
		left: map[string]bool{}, closing: make(chan struct{})}
	p.started = sync.NewCond(&p.mu)
	return p, nil
}

// Check implements Checker. It refuses commands that are not allowed or not executable,
// and variables that are not allowed.
func (p *Process) Check(spec Spec) error {
	_, err := p.resolve(spec)
	return err
}

// NeedsCommand reports that a task must have a command.
func (p *Process) NeedsCommand() bool { return true }

// AllowLists returns a digest of the allowed commands and variables. The variables that load code
// belong to it, because a later version may know others.
func (p *Process) AllowLists() string {
	return digestOf("process", p.cfg.Allow, p.cfg.AllowEnv, loaders)
}

// resolve returns the path of the worker's program.
func (p *Process) resolve(spec Spec) (string, error) {
	if err := checkText(spec); err != nil {
		return "", err
	}
	if p.cfg.WorkDir != "" {
		// A relative command is missing with the directory, which is no fault of the task.
		if err := (user{}).enters(p.cfg.WorkDir); err != nil {
			return "", startFailed("%v", err)
		}
	}
	path, err := resolve(p.cfg.Allow, spec.Command, p.workDir(spec))
	if err != nil {
		return "", err
	}
	return path, permitEnv(p.cfg.AllowEnv, spec.Env)
}

// workDir returns the working directory of a worker.
func (p *Process) workDir(spec Spec) string {
	return cmp.Or(p.cfg.WorkDir, filepath.Join(workerPath(p.cfg.Dir, spec.identity()), dirWork))
}

// Start implements Driver.
func (p *Process) Start(spec Spec, ended func(Exit)) (Handle, error) {
	p.starts.RLock()
	defer p.starts.RUnlock()
	dir, work := workerPath(p.cfg.Dir, spec.identity()), p.workDir(spec)
	path, err := p.resolve(spec)
	if err != nil {
		return nil, err
	}
	if err := p.takeFiles(); err != nil {
		return nil, startFailed("%v", err)
	}
	defer p.freeFiles()
	if err := p.makeDir(dir); err != nil {
		return nil, startFailed("the worker's directory: %v", withLimit(err))
	}
	u, err := p.takeUser()
	if err != nil {
		p.discard(dir)
		return nil, err
	}
	pl := plan{
		Spec: spec, Path: path, Dir: work, User: u,
		Log: logLimit{MaxBytes: p.cfg.LogMaxBytes, Keep: p.cfg.LogKeep}, Signals: true,
	}
	if spec.Payload != nil {
		pl.Payload = filePayload + "-" + rand.Text()
	}
	pl.Env = p.env(pl, dir)
	if err := errors.Join(prepare(dir, pl), p.lend(spec.Volume, u)); err != nil {
		p.freeUser(dir, spec.Volume, u)
		p.discard(dir)
		return nil, startFailed("the worker's directories: %v", withLimit(err))
	}
	k, err := p.spawn(dir, pl, spec.Ready, ended)
	if err != nil {
		p.freeUser(dir, spec.Volume, u)
		p.discard(dir)
		return nil, startFailed("the worker's keeper: %v", withLimit(err))
	}
	limit := p.cfg.StartTimeout
	if spec.StartLimit > 0 {
		limit = min(limit, spec.StartLimit)
	}
	late := time.AfterFunc(limit, k.giveUp)
	<-k.settled
	late.Stop()
	if k.notStarted != "" {
		p.discard(dir)
		if k.badTask {
			return nil, badTask("%s", k.notStarted)
		}
		return nil, startFailed("%v", withLimit(errors.New(k.notStarted)))
	}
	return k, nil
}

// spawn starts the keeper and watches it.
func (p *Process) spawn(dir string, pl plan, ready func(), ended func(Exit)) (*keptWorker, error) {
	k := &keptWorker{driver: p, dir: dir, signals: pl.Signals, volume: pl.Spec.Volume, user: pl.User, ready: ready,
		ended: ended, settled: make(chan struct{})}
	var err error
	if k.events, err = os.OpenFile(filepath.Join(dir, pipeEvents), os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	// Opening the pipe for reading and writing never blocks. The keeper inherits this file,
	// so the pipe ends exactly when the keeper exits.
	pipe, err := os.OpenFile(filepath.Join(dir, pipeEvents), os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, k.events.Close())
	}
	defer pipe.Close() //nolint:errcheck // the keeper has its own copy
	cmd := &exec.Cmd{
		// /proc/self/exe instead of the path, because a newer version may have replaced the
		// file.
		Path: "/proc/self/exe", Args: []string{"berth-keeper", pl.Spec.Worker.String()}, Dir: dir,
		Env:         []string{keeperVariable + "=1"},
		ExtraFiles:  []*os.File{pipe},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	stderr, err := os.OpenFile(filepath.Join(dir, fileKeeper), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, errors.Join(err, k.events.Close())
	}
	defer stderr.Close() //nolint:errcheck // only the keeper writes to it
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, k.events.Close())
	}
	// The driver reaps the keeper once the keeper's pipe has ended, as it does for adopted
	// keepers. Until then /proc lists the keeper, dead or alive.
	k.keeper, err = processOf(cmd.Process.Pid)
	if err = errors.Join(err, cmd.Process.Release()); err != nil {
		p.log.Warn("keeper started, but not found in /proc", "dir", dir, "error", err)
	}
	p.watch(k)
	return k, nil
}

func (p *Process) env(pl plan, dir string) []string {
	spec := pl.Spec
	env := slices.Clone(p.cfg.Env)
	if pl.User.ID != 0 {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "USER=") })
		own := filepath.Join(dir, dirWork)
		env = append(env, "HOME="+own, "TMPDIR="+own) // The last value of a variable counts.
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		if !strings.HasPrefix(name, model.AgentVariables) {
			env = append(env, name+"="+spec.Env[name])
		}
	}
	env = append(env, identityEnv(spec)...)
	if pl.Payload != "" {
		env = append(env, "BERTH_PAYLOAD_FILE="+filepath.Join(dir, pl.Payload))
	}
	if spec.Workers > 0 {
		env = append(env, fmt.Sprintf("BERTH_WORKERS=%d", spec.Workers))
	}
	if spec.Members != nil {
		env = append(env, "BERTH_GANG_FILE="+filepath.Join(dir, fileGang))
	}
	if v := spec.Volume; v.ID != "" {
		env = append(env, "BERTH_VOLUME="+v.Dir, "BERTH_VOLUME_ID="+v.ID)
	}
	if spec.loads() {
		env = append(env, "BERTH_READY_PIPE="+filepath.Join(dir, pipeReadiness))
	}
	return env
}

// identityEnv returns the variables that identify a worker in its environment. The
// processes that the worker starts inherit them.
func identityEnv(spec Spec) []string {
	return []string{
		"BERTH_JOB=" + spec.Worker.Job,
		"BERTH_STAGE=" + spec.Worker.Stage,
		fmt.Sprintf("BERTH_WORKER_INDEX=%d", spec.Worker.ID.Index),
		fmt.Sprintf("BERTH_WORKER_NUMBER=%d", spec.Worker.ID.Number),
		"BERTH_EXECUTOR=" + spec.Executor,
		fmt.Sprintf("BERTH_EPOCH=%d", spec.Epoch),
	}
}

// SetMembers implements Gangs.
func (p *Process) SetMembers(worker Handle, members []byte) error {
	k := worker.(*keptWorker)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return nil
	}
	return writeMembers(k.dir, k.user, members)
}

// Close implements Driver.
func (p *Process) Close() error {
	p.starts.Lock()
	defer p.starts.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.closing)
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if p.retryRemoval != nil {
		p.retryRemoval.Stop()
	}
	var errs []error
	for k := range p.watched {
		errs = append(errs, k.events.Close())
	}
	p.mu.Unlock()
	p.watches.Wait()
	return errors.Join(errs...)
}

// makeDir creates the directory of a worker. It first removes what an earlier start could not
// remove. It returns an error if the directory of another worker exists, and otherwise leaves
// nothing if it fails.
func (p *Process) makeDir(dir string) error {
	p.removing.Lock()
	defer p.removing.Unlock()
	p.mu.Lock()
	left := p.left[dir]
	p.mu.Unlock()
	if left {
		if err := p.removeDir(dir); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, dir)
	job := filepath.Dir(dir)
	if err := os.MkdirAll(job, 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		_ = os.Remove(job) // If the job has other workers, the directory is not empty.
		return err
	}
	if p.cfg.WorkerUIDs == (UIDRange{}) {
		return nil
	}
	// The worker's user must reach its own directory, which is below these.
	for _, path := range []string{p.cfg.Dir, filepath.Dir(job), job, dir} {
		if err := reachable(path); err != nil {
			return errors.Join(err, os.Remove(dir))
		}
	}
	return nil
}
