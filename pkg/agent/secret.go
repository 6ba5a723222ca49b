package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth.dev/api/fault"
)

// ErrSuperseded is the error that Run returns if another agent has taken the executor's
// ID. Run returns it once the workers of this agent have ended.
var ErrSuperseded = fault.New(fault.Precondition, fault.ReasonOtherAgent,
	"another agent has taken this ID, so this agent accepts no requests; stop one of the two agents; to keep this agent, restart it")

// maxSecret is the maximum length of a secret, in bytes.
const maxSecret = 256

// secretFile is the name of the file with the agent's secret. Another agent with that
// secret could take over the executor, so only the agent's user may read the file.
const secretFile = "secret"

// openSecret returns the agent's secret and reports whether an earlier run used it. It
// returns the configured secret, or the secret in the directory, or a new secret. Without
// a directory a new secret is lost when the process ends. Then no other process can
// register the executor until the executor is LOST. The secret of a simulated executor is
// derived from its ID, so that a simulation can be restarted. Such a secret protects
// nothing.
func openSecret(cfg Config) (secret string, kept bool, err error) {
	_, simulated := cfg.Driver.(Simulated)
	switch {
	case len(cfg.Secret) > maxSecret:
		return "", false, fmt.Errorf("secret: must have at most %d bytes, has %d", maxSecret, len(cfg.Secret))
	case cfg.Secret != "":
		return cfg.Secret, true, nil
	case cfg.Dir == "" && simulated:
		return "simulated executor " + cfg.ID, false, nil
	case cfg.Dir == "":
		return rand.Text(), false, nil
	}
	path := filepath.Join(cfg.Dir, secretFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret = rand.Text()
		return secret, false, writeDurably(path, secret)
	}
	if err != nil {
		return "", false, err
	}
	if secret = strings.TrimSpace(string(text)); secret == "" || len(secret) > maxSecret {
		return "", false, fmt.Errorf("%s: must have 1 to %d bytes, has %d; if you remove the file, the agent makes a new secret", path, maxSecret, len(secret))
	}
	return secret, true, os.Chmod(path, 0o600)
}

// writeDurably writes a line to a file that only the agent's user can read, durably and
// atomically.
func writeDurably(path, line string) error {
	next := path + ".new"
	file, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line + "\n")
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
