package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// slowAuth counts logins, which take some time.
type slowAuth struct {
	clientv3.Auth
	mu    sync.Mutex
	began int
	err   error
}

func (a *slowAuth) Authenticate(ctx context.Context, _, password string) (*clientv3.AuthenticateResponse, error) {
	a.mu.Lock()
	a.began++
	err := a.err
	a.mu.Unlock()
	if sleepErr := Sleep(ctx, time.Second); sleepErr != nil {
		return nil, sleepErr
	}
	return &clientv3.AuthenticateResponse{Token: password}, err
}

// Calls that need a login at the same time share one, which does not end with the call that began it. Its
// token counts for a later call if no call has taken it, and a refusal for a while.
func TestLoginsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		password, auth := "a", &slowAuth{}
		l := &login{Auth: auth, client: t.Context(), current: func() string { return password }}
		expect := func(began int) {
			t.Helper()
			auth.mu.Lock()
			defer auth.mu.Unlock()
			if auth.began != began {
				t.Errorf("%d logins, want %d", auth.began, began)
			}
		}
		call := func(ctx context.Context) error {
			want := password
			answer, err := l.Authenticate(ctx, "berth", "")
			if err == nil && answer.Token != want {
				t.Errorf("the token is that of the password %q, want %q", answer.Token, want)
			}
			return err
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that ends during the login: %v", err)
		}
		time.Sleep(5 * time.Second)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := call(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if auth.began > 2 { // calls take the token, and those that come after share the next login
			t.Errorf("%d logins, want at most 2", auth.began)
		}

		time.Sleep(untakenFor)
		auth.began = 0
		for range 10 {
			all.Go(func() {
				if err := call(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		expect(1)
		password = "b"
		if err := call(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
		expect(2)

		auth.err = rpctypes.ErrAuthFailed
		for range 3 {
			if err := call(t.Context()); !errors.Is(err, rpctypes.ErrAuthFailed) {
				t.Errorf("a refused login: %v", err)
			}
		}
		expect(3)
		time.Sleep(refusedFor)
		_ = call(t.Context())
		expect(4)
	})
}
