package agent

import "testing"

// Hosts whose memory differs by some pages have the same resources. If a host has less than
// one step, its exact amount counts.
func TestDetectedAmountsAreWholeSteps(t *testing.T) {
	for _, test := range []struct{ amount, step, want int64 }{
		{64<<30 - 12345<<12, memoryStep, 64<<30 - memoryStep},
		{64<<30 - 12001<<12, memoryStep, 64<<30 - memoryStep},
		{64 << 30, memoryStep, 64 << 30},
		{100 << 20, memoryStep, 100 << 20},
		{0, diskStep, 0},
	} {
		if got := roundDown(test.amount, test.step); got != test.want {
			t.Errorf("%d in steps of %d is %d, want %d", test.amount, test.step, got, test.want)
		}
	}
	offer, err := Detect(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m := offer["memory"]; m <= 0 || m >= memoryStep && m%memoryStep != 0 {
		t.Errorf("memory is %d", m)
	}
	if d := offer["disk"]; d >= diskStep && d%diskStep != 0 {
		t.Errorf("disk is %d", d)
	}
}
