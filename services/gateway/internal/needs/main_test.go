package needs_test

import (
	"testing"

	"go.uber.org/goleak"

	"berth.dev/testkit/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.Leaks()...) }
