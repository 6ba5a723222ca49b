package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrLogin is wrapped by definite errors: etcd refuses the user name or the password of this
// process, or requires a login and got none. The write did not happen.
var ErrLogin = errors.New("store: etcd refuses the login")

// newClient returns a client that logs in with its first call, and again whenever etcd rejects its
// token. clientv3.New would log in itself if the configuration had a user, and fail if etcd did not
// answer. If current is set, it returns the password of each login.
func newClient(config clientv3.Config, current func() string) (*clientv3.Client, error) {
	user, password := config.Username, config.Password
	if user == "" {
		return clientv3.New(config)
	}
	if current == nil {
		current = func() string { return password }
	}
	config.Username, config.Password = "", ""
	// The client sends this token until etcd rejects it. Then it logs in, because it has no
	// token of its own.
	config.Token = "none"
	client, err := clientv3.New(config)
	if err == nil {
		// The client logs in only if it has a password. login replaces it.
		client.Token, client.Username, client.Password = "", user, "replaced"
		client.Auth = &login{Auth: client.Auth, client: client.Ctx(), current: current}
	}
	return client, err
}

const (
	// loginTimeout bounds a login. etcd needs some 0.1 s of processor time for each password, so
	// after a restart of all processes logins queue.
	loginTimeout = 10 * time.Second
	// refusedFor is how long a login does not send a password again that etcd has refused. etcd refuses
	// every call until the password is right.
	refusedFor = 2 * time.Second
	// untakenFor is how long a token counts that no call has taken, because those that waited for it
	// ended before the login.
	untakenFor = 10 * time.Second
)

// login logs in with the current password. Calls of the client may run concurrently, so its own
// password must not change. Concurrent calls share one login, which does not end with any of them:
// etcd checks a password to its end in any case, and repeated logins would never end on a slow host.
type login struct {
	clientv3.Auth
	client  context.Context // ends when the client is closed
	current func() string

	mu   sync.Mutex
	last *attempt // nil before the first one
}

// attempt is a login with a password. ended is closed at its end; at, answer and err are set then.
type attempt struct {
	password string
	ended    chan struct{}
	at       time.Time
	answer   *clientv3.AuthenticateResponse
	err      error
	taken    atomic.Bool // a call has the answer; if another one logs in later, etcd has rejected its token
}

// Authenticate implements clientv3.Auth.
func (l *login) Authenticate(ctx context.Context, user, _ string) (*clientv3.AuthenticateResponse, error) {
	password := l.current()
	l.mu.Lock()
	a := l.last
	if a == nil || a.password != password || !a.counts() {
		a = &attempt{password: password, ended: make(chan struct{})}
		l.last = a
		go l.attempt(a, user)
	}
	l.mu.Unlock()
	select {
	case <-a.ended:
		a.taken.Store(true)
		return a.answer, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *login) attempt(a *attempt, user string) {
	ctx, cancel := context.WithTimeout(l.client, loginTimeout)
	defer cancel()
	a.answer, a.err = l.Auth.Authenticate(ctx, user, a.password)
	a.at = time.Now()
	close(a.ended)
}

// counts reports whether the attempt has not ended, or is the answer of another one.
func (a *attempt) counts() bool {
	select {
	case <-a.ended:
	default:
		return true
	}
	switch {
	case a.err == nil:
		return !a.taken.Load() && time.Since(a.at) < untakenFor
	case errors.Is(rpctypes.Error(a.err), rpctypes.ErrAuthFailed):
		return time.Since(a.at) < refusedFor
	}
	return false
}

// refusal is an error of Check that wraps ErrLogin or ErrDenied. Its text is a sentence.
type refusal struct {
	kind error
	text string
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.kind }

// refusal returns the error of Check if etcd has answered a read of a key, and refused the login or
// the read; otherwise nil.
func (e *Etcd) refusal(key string, err error) error {
	if err == nil {
		return nil
	}
	at := strings.Join(e.members.all, ", ")
	known := rpctypes.Error(err)
	switch code := status.Code(err); {
	case errors.Is(known, rpctypes.ErrUserEmpty):
		return refusal{ErrLogin, fmt.Sprintf("etcd at %s requires a login: set --etcd-user and --etcd-password-file", at)}
	case errors.Is(known, rpctypes.ErrPermissionDenied):
		return refusal{ErrDenied, fmt.Sprintf("etcd at %s does not permit the user %q to read %s", at, e.user, key)}
	case refused(err), code == codes.FailedPrecondition && e.user != "":
		remedy := "correct the password in --etcd-password-file, which is read again"
		if e.passwordProblem != nil {
			if problem := e.passwordProblem(); problem != "" {
				remedy = problem + ", so the last password that it had is used; the file is read again"
			}
		}
		return refusal{ErrLogin, fmt.Sprintf("etcd at %s refuses the login of the user %q: %s; %s",
			at, e.user, strings.TrimPrefix(rpctypes.ErrorDesc(err), "etcdserver: "), remedy)}
	}
	return nil
}
