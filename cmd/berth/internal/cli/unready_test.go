package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"berth.dev/api/rpc"
)

// TestUnknownIsNotNone checks that a command fails with the reason if the gateway cannot read the
// events: there may be some.
func TestUnknownIsNotNone(t *testing.T) {
	f := newFake(t)
	f.do(t, strings.Fields("unready etcd does not answer: etcd-0:2379 (connection refused)"))
	for _, args := range [][]string{{"events", "train"}, {"events", "train", "-f"}, {"events", "train", "--tail", "3"},
		{"logs", "train/gpu/0"}, {"logs", "train/gpu/0", "-f"}} {
		// If the timeout passes before the first answer, the error is different. The test then
		// repeats the command with more time.
		for timeout := 200 * time.Millisecond; ; timeout *= 4 {
			var out, stderr bytes.Buffer
			code := run(t, f, append(args, "--timeout", timeout.String()), bytes.NewReader(nil), &out, &stderr)
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			const reason = "the gateway is not ready: etcd does not answer: etcd-0:2379 (connection refused)"
			if code == rpc.ExitUnavailable && out.Len() == 0 && len(lines) > 1 &&
				strings.Contains(lines[1], " within ") && strings.Contains(lines[1], reason) {
				break
			}
			if timeout > 5*time.Second {
				t.Errorf("%v: exit %d, %q, %q", args, code, out.String(), lines)
				break
			}
		}
	}
}
