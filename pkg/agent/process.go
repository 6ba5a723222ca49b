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

	"berth.dev/pkg/model"
)

// ProcessConfig is what a Process driver is made of.
type ProcessConfig struct {
	// Dir is the agent's directory: each worker gets one of its own under
	// Dir/workers, with its output in the files stdout and stderr.
	Dir string
	// WorkDir is the working directory of workers; their own unless given.
	WorkDir string
	// Allow lists the commands that may be run: paths, or names that are looked
	// up in the agent's PATH, or AllowAll. It does not look at arguments: who
	// allows a shell allows everything.
	Allow []string
	// AllowEnv lists the variables that tasks may set, by name, or AllowAll: then those
	// by which programs load code (LD_PRELOAD, PYTHONPATH and the like) still need their
	// names.
	AllowEnv []string
	// Env is what workers get beside the task's own; PATH, HOME, USER, LANG, TZ
	// and TMPDIR of the agent unless given. The rest of the agent's environment
	// is its own.
	Env []string
	// LogMaxBytes is how large a file of output gets, 16 MiB unless given, and
	// LogKeep how many there are of each of a worker's two streams, the one that is
	// written to included, 2 unless given. The oldest goes when another is begun.
	LogMaxBytes int64
	LogKeep     int
	// EndedKeep, EndedMaxBytes and EndedMaxAge bound what is kept of workers whose
	// end the control plane knows: the number of their directories, what these hold
	// together, and how long they are kept; 64, 1 GiB and a week unless given.
	EndedKeep     int
	EndedMaxBytes int64
	EndedMaxAge   time.Duration
	// StartTimeout is how long a worker may take to come up before its start is
	// given up; 30 s unless given.
	StartTimeout time.Duration
	// Log is slog's default unless given.
	Log *slog.Logger
}

// Process is the driver of real processes. Each worker is a process in a group
// of its own, under a keeper: this program, started again. The program must call
// ShimMain. Workers get BERTH_JOB, BERTH_STAGE, BERTH_WORKER_INDEX,
// BERTH_WORKER_NUMBER, BERTH_EXECUTOR, BERTH_EPOCH, and BERTH_PAYLOAD_FILE when
// there is a payload.
//
// A stop signals the whole group. When the worker has ended, whatever it started
// and left behind is killed before the end is told.
type Process struct {
	cfg ProcessConfig
	log *slog.Logger

	// starts keeps Close away from a half-started worker.
	starts sync.RWMutex
	mu     sync.Mutex
	closed bool
	// closing is closed with the driver.
	closing chan struct{}
	// watched are the workers whose keeper lives.
	watched map[*kept]struct{}
	watches sync.WaitGroup
	// retired are the directories of forgotten workers, oldest first, and expiry
	// is due when the oldest has been kept for long enough.
	retired []retired
	expiry  *time.Timer
}

// NewProcess makes the driver. Its directory is made when it is needed.
func NewProcess(cfg ProcessConfig) (*Process, error) {
	if cfg.Dir == "" {
		return nil, errors.New("agent: processes need a directory")
	}
	var err error
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	if cfg.WorkDir != "" {
		if cfg.WorkDir, err = filepath.Abs(cfg.WorkDir); err != nil {
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
			return nil, fmt.Errorf("agent: %s cannot be negative", name)
		}
	}
	cfg.LogMaxBytes = cmp.Or(cfg.LogMaxBytes, 16<<20)
	cfg.LogKeep = cmp.Or(cfg.LogKeep, 2)
	cfg.EndedKeep = cmp.Or(cfg.EndedKeep, 64)
	cfg.EndedMaxBytes = cmp.Or(cfg.EndedMaxBytes, 1<<30)
	cfg.EndedMaxAge = cmp.Or(cfg.EndedMaxAge, 7*24*time.Hour)
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, defaultStartTimeout)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Process{cfg: cfg, log: cfg.Log, watched: map[*kept]struct{}{}, closing: make(chan struct{})}, nil
}

// Check implements Checker: it refuses commands that may not, or cannot, be run, and
// variables that may not be set.
func (p *Process) Check(spec Spec) error {
	_, err := p.resolve(spec)
	return err
}

// resolve finds the program of a worker that may be started.
func (p *Process) resolve(spec Spec) (string, error) {
	path, err := resolve(p.cfg.Allow, spec.Command, p.workDir(spec))
	if err != nil {
		return "", err
	}
	return path, permitEnv(p.cfg.AllowEnv, spec.Env)
}

// workDir is where a worker runs.
func (p *Process) workDir(spec Spec) string {
	return cmp.Or(p.cfg.WorkDir, workerPath(p.cfg.Dir, spec.identity()))
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
	if err := p.makeDir(dir); err != nil {
		return nil, startFailed("the worker's directory: %v", err)
	}
	pl := plan{
		Spec: spec, Path: path, Dir: work,
		Log: logLimit{MaxBytes: p.cfg.LogMaxBytes, Keep: p.cfg.LogKeep},
	}
	if spec.Payload != nil {
		pl.Payload = filePayload + "-" + rand.Text()
	}
	pl.Env = p.env(pl, dir)
	if err := prepare(dir, pl); err != nil {
		p.remove(dir)
		return nil, startFailed("the worker's directory: %v", err)
	}
	k, err := p.spawn(dir, pl, ended)
	if err != nil {
		p.remove(dir)
		return nil, startFailed("the worker's keeper: %v", err)
	}
	late := time.AfterFunc(p.cfg.StartTimeout, k.giveUp)
	<-k.settled
	late.Stop()
	if k.notStarted != "" {
		p.remove(dir)
		return nil, startFailed("%s", k.notStarted)
	}
	return k, nil
}

// spawn starts the keeper and watches it.
func (p *Process) spawn(dir string, pl plan, ended func(Exit)) (*kept, error) {
	k := &kept{driver: p, dir: dir, ended: ended, settled: make(chan struct{})}
	var err error
	if k.events, err = os.OpenFile(filepath.Join(dir, pipeEvents), os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	// Opened for both ways, which never blocks, and handed over: the keeper holds
	// it from its first moment, so that its end is the keeper's.
	pipe, err := os.OpenFile(filepath.Join(dir, pipeEvents), os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, k.events.Close())
	}
	defer pipe.Close() //nolint:errcheck // the keeper has it
	cmd := &exec.Cmd{
		// Not by name: the file may have been replaced by a newer version.
		Path: "/proc/self/exe", Args: []string{"berth-keeper", pl.Spec.Worker.String()}, Dir: dir,
		Env:         []string{keeperVariable + "=1"},
		ExtraFiles:  []*os.File{pipe},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	words, err := os.OpenFile(filepath.Join(dir, fileKeeper), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, errors.Join(err, k.events.Close())
	}
	defer words.Close() //nolint:errcheck // only the keeper writes to it
	cmd.Stderr = words
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, k.events.Close())
	}
	// It is reaped once its pipe has ended, as adopted ones are; until then it
	// can be read, dead or alive.
	k.keeper, err = processOf(cmd.Process.Pid)
	if err = errors.Join(err, cmd.Process.Release()); err != nil {
		p.log.Warn("keeper started, but not seen", "dir", dir, "error", err)
	}
	p.watch(k)
	return k, nil
}

func (p *Process) env(pl plan, dir string) []string {
	spec := pl.Spec
	env := slices.Clone(p.cfg.Env)
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		if !strings.HasPrefix(name, model.AgentVariables) {
			env = append(env, name+"="+spec.Env[name])
		}
	}
	env = append(env, marks(spec)...)
	if pl.Payload != "" {
		env = append(env, "BERTH_PAYLOAD_FILE="+filepath.Join(dir, pl.Payload))
	}
	return env
}

// marks are what the environment of a worker, and of what it starts, names it by.
func marks(spec Spec) []string {
	return []string{
		"BERTH_JOB=" + spec.Worker.Job,
		"BERTH_STAGE=" + spec.Worker.Stage,
		fmt.Sprintf("BERTH_WORKER_INDEX=%d", spec.Worker.ID.Index),
		fmt.Sprintf("BERTH_WORKER_NUMBER=%d", spec.Worker.ID.Number),
		"BERTH_EXECUTOR=" + spec.Executor,
		fmt.Sprintf("BERTH_EPOCH=%d", spec.Epoch),
	}
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
	var errs []error
	for k := range p.watched {
		errs = append(errs, k.events.Close())
	}
	p.mu.Unlock()
	p.watches.Wait()
	return errors.Join(errs...)
}

// makeDir makes the directory of a worker. One that is there is another's: it is
// left alone.
func (p *Process) makeDir(dir string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o750)
}
