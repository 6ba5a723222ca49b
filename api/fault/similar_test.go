package fault

import (
	"slices"
	"strings"
	"testing"
)

func TestSimilar(t *testing.T) {
	known := []string{"gpu-8", "gpu-16", "small", "Large", "x"}
	for word, want := range map[string]string{"gpu8": "gpu-8", "gpu": "gpu-8 gpu-16", "smal": "small",
		"large": "Large", "LARGE": "Large", "tpu": "", "y": "", "": ""} {
		if got := strings.Join(Similar(word, slices.Values(known)), " "); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if text := DidYouMean("gpu16", slices.Values(known)); text != "; did you mean gpu-16 or gpu-8?" {
		t.Error(text)
	}
}
