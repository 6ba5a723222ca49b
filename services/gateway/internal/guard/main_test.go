package guard

import (
	"testing"

	"go.uber.org/goleak"
)

// The HTTP server waits half a second before it closes a connection with unread input, so
// its goroutine may outlive a test.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
