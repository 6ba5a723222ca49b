package agent

import (
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(keeperVariable) != "" {
		go collect()
		for {
			if _, err := os.Stat("../" + fileHang); err != nil {
				break
			}
			time.Sleep(time.Hour) // Until it is killed.
		}
	}
	ShimMain()
	childMain()
	goleak.VerifyTestMain(m)
}

// collect runs the garbage collector of a keeper all the time, so that a file that the
// keeper does not keep alive is closed at once, and not once in a thousand runs.
func collect() {
	for range time.Tick(5 * time.Millisecond) {
		runtime.GC()
	}
}
