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

// ErrSuperseded is what Run returns once another agent has the executor's ID and
// the workers of this one have ended.
var ErrSuperseded = fault.New(fault.Precondition, fault.ReasonOtherAgent,
	"another agent has taken this id: this one takes no orders; stop one of the two, and if this one is to stay, start it again")

// maxSecret is how long a secret may be.
const maxSecret = 256

// secretFile is where an agent keeps its secret. With it another agent could take
// the executor over, so only the agent's user may read it.
const secretFile = "secret"

// openSecret answers the agent's secret, and whether it was kept from a run before:
// the one that is configured, the one in the directory, or else a new one. Without a
// directory a new one ends with the process: until the executor is LOST, no other
// process may register it then. Simulated executors have one that follows from their
// ID, so that a simulation can be started again; it protects nothing, and there is
// nothing to protect.
func openSecret(cfg Config) (secret string, kept bool, err error) {
	_, simulated := cfg.Driver.(Simulated)
	switch {
	case len(cfg.Secret) > maxSecret:
		return "", false, fmt.Errorf("the secret: at most %d bytes, are %d", maxSecret, len(cfg.Secret))
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
		return secret, false, writeSecret(path, secret)
	}
	if err != nil {
		return "", false, err
	}
	if secret = strings.TrimSpace(string(text)); secret == "" || len(secret) > maxSecret {
		return "", false, fmt.Errorf("%s: must have 1 to %d bytes, has %d: remove it, and the agent makes a new one", path, maxSecret, len(secret))
	}
	return secret, true, os.Chmod(path, 0o600)
}

// writeSecret makes the file durable, whole or not at all.
func writeSecret(path, secret string) error {
	next := path + ".new"
	file, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(secret + "\n")
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
