package agent

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ShimMain()
	childMain()
	goleak.VerifyTestMain(m)
}
