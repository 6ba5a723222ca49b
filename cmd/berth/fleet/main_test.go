package fleet

import (
	"testing"

	"berth.dev/cmd/berth/internal/asberth"
)

func TestMain(m *testing.M) { asberth.Main(m) }
