package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"berth.dev/pkg/reload"
)

// readSecret reads the file that an option names, without the spaces and line breaks around its
// content. The error names the option.
func readSecret(option, name string) (string, error) {
	content, err := os.ReadFile(name)
	text := strings.TrimSpace(string(content))
	switch path := (*fs.PathError)(nil); {
	case errors.As(err, &path):
		return "", fmt.Errorf("%s: cannot read %s: %w", option, name, path.Err)
	case text == "":
		return "", fmt.Errorf("%s: %s is empty", option, name)
	}
	return text, err
}

// secret returns a function that returns the content of a file without the spaces and line breaks
// around it. The function follows changes of the file until Close, and ignores an empty file. The
// error names the option.
func (s *Secured) secret(what, option, name string) (current func() string, err error) {
	var value atomic.Pointer[string]
	stop, err := reload.Watch(s.log, what, []string{name}, func(contents [][]byte) error {
		text := strings.TrimSpace(string(contents[0]))
		if text == "" {
			return fmt.Errorf("%s is empty", name)
		}
		value.Store(&text)
		return nil
	})
	switch unreadable := (*fs.PathError)(nil); {
	case errors.As(err, &unreadable):
		return nil, badConfig(err, "%s: cannot read %s", option, name)
	case err != nil:
		return nil, badConfig(nil, "%s: %v", option, err)
	}
	s.stop = append(s.stop, stop)
	return func() string { return *value.Load() }, nil
}
