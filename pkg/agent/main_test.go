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
			time.Sleep(time.Hour) // Until the test kills the keeper.
		}
	}
	ShimMain()
	leaveGroupMain()
	childMain()
	goleak.VerifyTestMain(m)
}

// collect runs the garbage collector of a keeper continuously. If the keeper does not keep
// a file alive, the file is then closed at once, and not only once in a thousand runs.
func collect() {
	for range time.Tick(5 * time.Millisecond) {
		runtime.GC()
	}
}
