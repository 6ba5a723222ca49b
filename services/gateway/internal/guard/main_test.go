package guard

import (
	"testing"

	"go.uber.org/goleak"
)

// A server waits half a second before it closes a connection with unread input.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
