package running

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"berth.dev/api/fault"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// Etcd is an etcd cluster that a command calls.
type Etcd struct {
	// Endpoints are the addresses of the members. Empty means no etcd cluster.
	Endpoints []string
	common    process.Common
}

// EtcdSilent returns the error that no etcd member answered in time.
func EtcdSilent(endpoints []string, within time.Duration) *fault.Error {
	list := strings.Join(endpoints, ",")
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "no answer from etcd at %s within %v", list, within).
		With("etcd", list)
}

// Refused returns the error about a call that etcd has refused, which names the options to set; otherwise
// it returns err, an error of package store. action describes the call, such as "read /berth/".
func (e *Etcd) Refused(err error, action string) error {
	const options, at = "--etcd-user and --etcd-password-file", "etcd at %s "
	list := strings.Join(e.Endpoints, ",")
	denied := func(format string, args ...any) error {
		return fault.New(fault.Denied, fault.ReasonPermissionDenied, at+format, append([]any{list}, args...)...)
	}
	switch user := e.common.EtcdUser; {
	case errors.Is(err, store.ErrLogin) && user == "":
		return denied("requires a login: set %s", options)
	case errors.Is(err, store.ErrLogin):
		return denied("refuses the login of the user %q: correct %s", user, options)
	case errors.Is(err, store.ErrDenied) && user == "":
		return denied("does not permit this client to %s: set %s to a user that may", action, options)
	case errors.Is(err, store.ErrDenied):
		return denied("does not permit the user %q to %s: set %s to a user that may", user, action, options)
	}
	return err
}

// Flags adds the flags for etcd. The flags about security are those of the services.
func (e *Etcd) Flags(set *pflag.FlagSet, endpoints string) {
	set.StringSliceVar(&e.Endpoints, "etcd-endpoints", e.Endpoints, endpoints)
	set.StringVar(&e.common.EtcdCert, "etcd-cert", "", "certificate file (PEM) for calls to etcd")
	set.StringVar(&e.common.EtcdKey, "etcd-key", "", "key file (PEM) of --etcd-cert")
	set.StringVar(&e.common.EtcdCA, "etcd-ca", "", "file (PEM) of the certificate authorities of etcd")
	set.StringVar(&e.common.EtcdUser, "etcd-user", "", "user name for etcd")
	set.StringVar(&e.common.EtcdPasswordFile, "etcd-password-file", "", "file with the password of --etcd-user")
	set.BoolVar(&e.common.Insecure, "insecure", false, "send the password to etcd beyond loopback in plain text")
}

// Config returns how to call etcd. The error names the flag.
func (e *Etcd) Config() (store.DialConfig, error) {
	var err error
	if e.Endpoints, err = process.CheckList("etcd-endpoints", "etcd", e.Endpoints); err != nil {
		return store.DialConfig{}, err
	}
	e.common.Etcd = e.Endpoints
	secured, err := e.common.Secure(identity.Nobody, slog.New(slog.DiscardHandler))
	if err != nil {
		return store.DialConfig{}, err
	}
	defer secured.Close() // a command is too short for a new certificate
	common := e.common
	if common.EtcdUser == "" && common.EtcdPasswordFile == "" {
		common.Insecure = true // nothing secret is sent
	}
	etcd, err := secured.Etcd(common)
	return store.DialConfig(etcd), err
}
