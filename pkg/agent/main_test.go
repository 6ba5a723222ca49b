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

// collect has a keeper's garbage collected all the time, so that what it does
// not really hold is gone at once, and not once in a thousand runs.
func collect() {
	for range time.Tick(5 * time.Millisecond) {
		runtime.GC()
	}
}
